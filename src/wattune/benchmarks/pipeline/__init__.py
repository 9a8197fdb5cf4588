"""`wattune bench pipeline`."""
