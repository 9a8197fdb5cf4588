"""`wattune bench job`."""
