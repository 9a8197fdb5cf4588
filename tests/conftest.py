"""Fixtures that tests of several folders share."""

pytest_plugins = ["emulated", "postgres_server"]
