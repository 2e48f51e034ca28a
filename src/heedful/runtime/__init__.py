"""The machine: the native library, threads and memory, and files that survive a crash."""
