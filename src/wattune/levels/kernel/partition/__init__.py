"""Partitions of a model: computation beside communication, their settings, searches and compositions."""
