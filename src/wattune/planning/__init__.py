"""Which plans are worth having: for every time, the least energy."""
