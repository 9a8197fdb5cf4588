"""`wattune bench run`."""
