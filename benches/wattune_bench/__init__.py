"""Measuring wattune itself, side by side with its peers and with bounds, in one run on one input."""
