"""`wattune bench kernels`."""
