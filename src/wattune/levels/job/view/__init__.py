"""Views of a recurring job: pages, charts, terminal."""
