"""GPUs behind one small protocol: real, simulated, played from a table, or replayed."""
