"""Sweeps of a workload over settings: which to measure next, how they compare, and the page that shows it."""
