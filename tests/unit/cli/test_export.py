from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from store_contract import a_run
from wattune.cli.export import FlatTable, csv_bytes
from wattune.cli.main import run
from wattune.core.csv_input import Row, text_cell
from wattune.store.sql_store import open_store


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WATTUNE_STORE", str(tmp_path / "history.db"))
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("wattune.store.fallback.TEMPORARY", ())
    store = open_store(str(tmp_path / "history.db"))
    store.add_run(a_run("a", name='say "hello",\nworld'))
    store.add_run(a_run("b", minutes=1, simulated=False))
    return tmp_path


def exported(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["export", *arguments]) == 0
    return capsys.readouterr().out


def complained(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 1) -> str:
    assert run(["export", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.parametrize(("what", "rows"), [("runs", 2), ("gpus", 4), ("trials", 4), ("traces", 2)])
def test_the_three_formats_say_the_same(home: Path, capsys: pytest.CaptureFixture[str], what: str, rows: int) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    from_csv = list(csv.DictReader(io.StringIO(exported(capsys, "--format", "csv", "--what", what), newline="")))
    document = json.loads(exported(capsys, "--format", "json", "--what", what))
    exported(capsys, "--what", what, "--out", str(home / "out.parquet"))
    from_parquet = parquet.read_table(home / "out.parquet").to_pylist()
    assert document["rows"] == from_parquet
    assert len(from_csv) == rows
    for read, meant in zip(from_csv, document["rows"], strict=True):
        assert list(read) == list(meant) == document["columns"]
        for name, value in meant.items():
            assert read[name] == (
                "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
            )
    assert {row["simulated"] for row in document["rows"]} == {True, False}


def test_an_empty_history_still_has_typed_columns(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setenv("WATTUNE_STORE", str(home / "empty.db"))
    exported(capsys, "--out", str(home / "empty.parquet"))
    table = parquet.read_table(home / "empty.parquet")
    assert table.num_rows == 0
    assert str(table.schema.field("energy_j").type) == "double"
    assert exported(capsys).startswith("id,kind,name,started_at")


def test_the_name_of_the_file_sets_the_format(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exported(capsys, "--out", str(home / "out.json"))
    assert len(json.loads((home / "out.json").read_text())["rows"]) == 2
    exported(capsys, "--out", str(home / "out.txt"))
    assert (home / "out.txt").read_text().startswith("id,kind")


def test_json_shows_what_was_written_where(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(home / "out.csv")
    assert json.loads(exported(capsys, "--out", out, "--json")) == {
        "file": out,
        "format": "csv",
        "what": "runs",
        "rows": 2,
    }
    assert json.loads(exported(capsys, "--json")) == json.loads(exported(capsys, "--format", "json", "--out", "-"))


def test_a_file_is_not_overwritten_unasked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = home / "out.csv"
    out.write_text("precious")
    assert "--force" in complained(capsys, "--out", str(out))
    assert out.read_text() == "precious"
    exported(capsys, "--out", str(out), "--force")
    assert out.read_text().startswith("id,kind")


def test_a_file_that_cannot_be_written_whole_is_not_written(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    out = home / "out.csv"
    out.write_text("precious")
    before = sorted(home.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full_disk)
        assert "No space left" in complained(capsys, "--out", str(out), "--force")
    assert out.read_text() == "precious"
    assert sorted(home.iterdir()) == before


def test_wrong_arguments_get_one_line_and_a_hint(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is a folder" in complained(capsys, "--out", str(home))
    assert "cannot write" in complained(capsys, "--out", str(home / "nowhere" / "out.csv"))
    assert "goes to a file" in complained(capsys, "--format", "parquet", code=2)
    assert "standard output" in complained(capsys, "--format", "csv", "--json", code=2)
    complained(capsys, "--format", "xml", code=2)


def test_without_pyarrow_the_error_has_the_line_to_type(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'wattune[parquet]'" in complained(capsys, "--out", str(home / "out.parquet"))
    assert not (home / "out.parquet").exists()


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "=cmd|' /C calc'!A0"])
def test_a_text_is_never_a_formula(text: str) -> None:
    table = FlatTable(["name", "time_s"], [{"name": text, "time_s": -1.5}])
    assert list(csv.reader(io.StringIO(csv_bytes(table).decode(), newline="")))[1] == [f"'{text}", "-1.5"]
    assert Row("f", 1, {"name": text_cell(text)}).text("name") == text
