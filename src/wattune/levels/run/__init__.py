"""The run level: clocks of an unmodified program while it runs."""
