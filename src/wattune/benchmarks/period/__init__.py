"""`wattune bench period`."""
