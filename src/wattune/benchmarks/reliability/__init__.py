"""Attacks on wattune: kills, signals, damaged input, outages, and what is lost in them."""
