"""What the page about the store says is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wattune.store import tables

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "store.md"


def test_the_page_names_every_column_of_every_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for table in tables.metadata.tables.values():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{table.name}`"))
        assert f"`{', '.join(column.name for column in table.columns)}`" in row


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(found[1], names)
    assert names["history"] == ()
    assert (tmp_path / "history.db").exists()
