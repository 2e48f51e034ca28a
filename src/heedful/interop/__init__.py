"""Import and export of models of other implementations."""
