"""GPOEO (Wang et al. 2022), the published rule."""
