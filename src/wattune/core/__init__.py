"""The values that all of wattune speaks in: frozen, and without any input or output."""
