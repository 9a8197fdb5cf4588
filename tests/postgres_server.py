"""A real PostgreSQL server for tests, on a Unix socket in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from wattune_bench.reliability.postgres import PostgresServer, running_postgres, server_programs


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Start a server, and remove it at the end."""
    programs = server_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server here: apt-get install -y postgresql")
    with running_postgres(programs) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """Create an empty database and return its URL."""
    return postgres_server.new_url()
