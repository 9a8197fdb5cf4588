"""Optimisers and regression models that levels share; pure and frozen."""
