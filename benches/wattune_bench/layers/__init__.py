"""`wattune bench layers`: clocks per layer beside the published findings, and their predictions on real kernels."""
