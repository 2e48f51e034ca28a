"""Process groups: one process, several processes of one machine, or those that torchrun starts."""
