"""Fits of physical models with few parameters to measurements, with priors for typical GPUs."""
