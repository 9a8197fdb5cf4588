"""GPUs behind one small protocol: real, simulated, or played from a table."""
