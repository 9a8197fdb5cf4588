"""`wattune bench physics`."""
