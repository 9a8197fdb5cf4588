"""Readers of public measurements, each for one form of file; wattune contains none of the files."""
