"""Fixtures that tests of several folders share."""

pytest_plugins = ["processes", "emulated", "postgres_server"]
