"""From a trained model to text: search over a step function, and the translator around it."""
