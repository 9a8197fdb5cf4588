"""Networks as work for a GPU: from shapes and batch size to phases."""
