"""The loops that drive GPUs, one file per level of control."""
