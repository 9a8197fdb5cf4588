from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from store_contract import a_run
from wattune.cli.main import run
from wattune.core.errors import StoreError
from wattune.store.fallback import LINES_NAME, keep_run
from wattune.store.records import FullRun, Run, RunGpu
from wattune.store.sql_store import Store, open_store


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WATTUNE_STORE", str(tmp_path / "history.db"))
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("wattune.store.fallback.TEMPORARY", ())
    return tmp_path


@pytest.fixture
def store(home: Path) -> Store:
    return open_store(str(home / "history.db"))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(["history", *arguments]) == code
    return capsys.readouterr().out


def complained(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 1) -> str:
    assert run(["history", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err


def test_an_empty_history_shows_what_to_do(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert "wattune measure" in printed(capsys)
    assert json.loads(printed(capsys, "--json")) == {"runs": []}


def test_the_list_is_newest_first_and_marked_simulated(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.add_run(a_run("11111111-aaaa", name="old", minutes=0))
    store.add_run(a_run("22222222-bbbb", name="new", minutes=1))
    header, first, second = printed(capsys).splitlines()
    assert header.split() == ["id", "when", "kind", "name", "device", "energy", "power", "time", "Δ", "energy"]
    assert first.startswith("22222222 ")
    assert second.startswith("11111111 ")
    assert "2 × A100 (simulated)" in first
    assert "1.00 kJ" in first


def test_what_was_not_measured_is_not_a_zero(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    gpu = RunGpu(uuid="GPU-0", name="T4", simulated=False, time_s=1.0)
    bare = Run(
        id="ab",
        kind="measure",
        name="[red]x[/red] \x1b[31m\n2",
        started_at=datetime(2025, 3, 1, tzinfo=UTC),
        time_s=1.0,
        energy_j=None,
        simulated=False,
        host="h",
        version="0",
        gpus=(gpu,),
    )
    store.add_run(FullRun(bare))
    line = printed(capsys).splitlines()[1]
    assert line.split()[-5:] == ["–", "–", "1.00", "s", "–"]
    assert "simulated" not in line
    assert "[red]x[/red]" in line
    assert "\x1b" not in line
    assert printed(capsys, "ab").count("not measured") == 4


def test_narrow_screens_cut_the_name_and_never_the_word_simulated(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add_run(a_run("11111111-aaaa", name="python " + "x" * 300))
    for columns in ("80", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        text = printed(capsys)
        assert "simulated" in text
        assert "…" in text
        assert len(text.splitlines()) == 2
        assert max(len(line) for line in text.splitlines()) <= int(columns)


def test_the_saving_is_whole_at_80_columns(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = a_run("11111111-aaaa", kind="run", name="python " + "x" * 300)
    gpus = tuple(replace(gpu, name="NVIDIA A100-SXM4-40GB") for gpu in full.run.gpus[:1])
    store.add_run(replace(full, run=replace(full.run, gpus=gpus, details={"saving_percent": 10.7})))
    monkeypatch.setenv("COLUMNS", "80")
    head, line = printed(capsys).splitlines()
    assert (head.split()[-1], line.split()[-2:]) == ("energy", ["−10.7", "%"])


def test_the_device_keeps_its_name_at_80_columns(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = a_run("11111111-aaaa", kind="measure", name="python train.py")
    gpus = tuple(replace(gpu, name="NVIDIA A100-SXM4-40GB") for gpu in full.run.gpus[:1])
    store.add_run(replace(full, run=replace(full.run, gpus=gpus)))
    monkeypatch.setenv("COLUMNS", "80")
    head, line = printed(capsys).splitlines()
    assert "power" not in head  # energy and time are there
    assert "simulated A100" in line
    monkeypatch.setenv("COLUMNS", "120")
    assert "power" in printed(capsys)


def test_runs_can_be_chosen(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.add_run(a_run("a", kind="sweep", name="resnet"))
    store.add_run(a_run("b", kind="measure", name="bert", minutes=1))

    def chosen(*arguments: str) -> list[str]:
        return [found["id"] for found in json.loads(printed(capsys, "--json", *arguments))["runs"]]

    assert chosen() == ["b", "a"]
    assert chosen("--limit", "1") == ["b"]
    assert chosen("--kind", "sweep") == ["a"]
    assert chosen("--name", "RES") == ["a"]
    assert chosen("--since", "2025-03-01T12:01:00+00:00") == ["b"]
    assert chosen("--since", "1h") == []
    assert printed(capsys, "--kind", "nope") == "no run matches; list all with: wattune history\n"


def test_an_age_counts_back_from_now(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    minutes = round(
        (datetime.now(UTC) - timedelta(hours=2) - datetime(2025, 3, 1, 12, tzinfo=UTC)).total_seconds() / 60
    )
    store.add_run(a_run("a", minutes=minutes))
    assert len(json.loads(printed(capsys, "--json", "--since", "3h"))["runs"]) == 1
    assert len(json.loads(printed(capsys, "--json", "--since", "90m"))["runs"]) == 0


def test_one_run_in_full(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    full = a_run("11111111-aaaa")
    store.add_run(full)
    text = printed(capsys, "1111")
    for words in (
        "python train.py",
        "1\u2009000 ± 0.70",
        "simulated",
        "GPU-1",
        "1410 MHz, limit 250 W",
        "driver default",
        "95 % W",
    ):
        assert words in text
    document = json.loads(printed(capsys, "1111", "--json"))
    assert document["run"]["simulated"] is True
    assert len(document["trials"]) == 2
    assert document["traces"][0]["samples"] == 25


def test_wrong_arguments_get_one_line_and_a_hint(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.add_run(a_run("3f01"))
    store.add_run(a_run("3f02"))
    assert "3f01, 3f02" in complained(capsys, "3f")
    assert "there is no run" in complained(capsys, "9")
    assert "hint: list the runs" in complained(capsys, "\udcff")
    assert "neither a date" in complained(capsys, "--since", "yesterday", code=2)
    assert "neither a date" in complained(capsys, "--since", "9" * 30 + "d", code=2)
    assert "cannot be used together" in complained(capsys, "3f01", "--recover", code=2)
    complained(capsys, "--limit", "0", code=2)


def test_a_run_can_be_forgotten(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.add_run(a_run("3f01"))
    store.add_run(a_run("4f01"))
    assert "deleted 3f01" in printed(capsys, "--forget", "3")
    assert json.loads(printed(capsys, "--forget", "4", "--json"))["forgotten"]["id"] == "4f01"
    assert store.runs() == ()


def spilled(home: Path, run_id: str, url: Path) -> None:
    with pytest.raises(StoreError):
        keep_run(a_run(run_id), store_url=str(url), state_dir=home / "state")


def test_the_list_takes_in_what_an_earlier_failure_left(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "history.db").mkdir()
    spilled(home, "a", home / "history.db")
    assert "is a folder" in complained(capsys)
    (home / "history.db").rmdir()
    assert run(["history", "--json"]) == 0
    captured = capsys.readouterr()
    assert [found["id"] for found in json.loads(captured.out)["runs"]] == ["a"]
    assert "could not be stored earlier" in captured.err


def test_recover_takes_in_the_runs_of_every_store(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "gone.db").mkdir()
    spilled(home, "a", home / "gone.db")
    (home / "state" / LINES_NAME).write_text("damaged\n")
    assert json.loads(printed(capsys, "--json")) == {"runs": []}
    assert run(["history", "--recover"]) == 0
    captured = capsys.readouterr()
    assert "1 run stored" in captured.out
    assert "damaged entries" in captured.err
    assert json.loads(printed(capsys, "--recover", "--json")) == {"taken": 0, "left": 1}
    assert "no runs to recover" in printed(capsys, "--recover")
