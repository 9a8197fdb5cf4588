"""The version of wattune, in the one place that every layer may read."""

__version__ = "0.1.0"
