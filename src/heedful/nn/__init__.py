"""The paper's parts, a file each: numbers go in, tensors come out; no configuration, no files, no kernels."""
