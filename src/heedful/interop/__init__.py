"""Models from elsewhere: weights under other names, and the algebra that makes them this package's."""
