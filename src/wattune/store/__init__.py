"""The history of everything that was measured."""
