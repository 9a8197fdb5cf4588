"""The layer level: core and memory clock per layer or segment of a network, and whether that pays."""
