"""Views of a tuned run: page, charts, terminal."""
