"""Bridges to other people's frameworks. Each imports its framework, and nothing else in wattune does."""
