"""MF-GPOEO, the published model-free rule."""
