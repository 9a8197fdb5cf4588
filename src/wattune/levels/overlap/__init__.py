"""The overlap level: computation beside communication in partitions of a model, their settings and searches."""
