"""Opening a store by its URL."""

from __future__ import annotations

from wattune.store.engine import engine_of, place_of, use_write_ahead_log
from wattune.store.failures import explained
from wattune.store.migrations import migrate
from wattune.store.protocol import Store
from wattune.store.sql_store import SqlStore


def open_store(url: str) -> Store:
    """The store at a URL (`sqlite:///path`, `postgresql://...` or a plain path), made or brought up to date if need be.

    It holds nothing open between calls, so it needs no closing and may be used by several threads and after a fork.
    """
    engine = engine_of(url)
    with explained(place_of(engine.url)):
        if engine.dialect.name == "sqlite":
            use_write_ahead_log(engine)
        migrate(engine)
    return SqlStore(engine)
