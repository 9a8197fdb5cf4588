"""ODPP, the published rule."""
