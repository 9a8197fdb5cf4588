"""The levels of control, one folder each. They do not import one another."""
