"""Solvers of the pipeline planner: linear relaxations, rounding, and the cost of switching."""
