"""Signals of a program: the period of its power, changes, idle times and sensor errors."""
