"""Both databases pass the store contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from store_contract import StoreContract


class TestSqlite(StoreContract):
    @pytest.fixture
    def store_url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/new/folder/history.db"


@pytest.mark.postgres
class TestPostgresql(StoreContract):
    @pytest.fixture
    def store_url(self, postgres_url: str) -> str:
        return postgres_url
