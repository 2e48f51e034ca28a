"""Published implementations from scratch: the weights of tutorials, notebooks and lectures."""
