"""`wattune bench change`."""
