"""Settings: the options of commands, the schema of a run with the defaults of the paper, and presets."""
