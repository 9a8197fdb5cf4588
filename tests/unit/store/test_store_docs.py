"""The page about the store matches the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wattune.core.job import JobMemory, Outcome
from wattune.store import schema

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "store.md"


def test_the_page_names_every_column_of_every_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for table in schema.metadata.tables.values():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{table.name}`"))
        assert f"`{', '.join(column.name for column in table.columns)}`" in row


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert names["history"] == ()
    assert isinstance(names["memory"], JobMemory)
    assert [run.outcome for run in names["memory"].runs] == [Outcome.REACHED]
    assert (tmp_path / "history.db").exists()
