"""The command line: parse arguments, print, set the exit code. One file a verb; heavy imports are lazy."""
