"""Published from-scratch implementations: the weights of tutorials, notebooks and lectures."""
