"""`wattune bench meter`."""
