"""Process groups: training by one process, by several on one machine, or by those that torchrun starts."""
