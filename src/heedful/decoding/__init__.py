"""From a trained model to text: searches over the steps of a backend, and the translator around them."""
