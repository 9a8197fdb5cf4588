from __future__ import annotations

import csv
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from wattune.cli.counted_program import counted_command
from wattune.cli.main import run
from wattune.cli.sweep.output import _no_recommendation
from wattune.cli.sweep.work import CommandTrial, CommandWork
from wattune.control.counted_work import CountedWork
from wattune.control.progress_estimator import ONLY_OPTIMIZERS
from wattune.control.step_file import UNFOLLOWED
from wattune.core.gpu_spec import ClockTable, GpuSpec, PowerLimits
from wattune.core.measurement import Measurement
from wattune.core.reading import Count, Reading
from wattune.core.refresh import Refresh
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.store.sql_store import open_store
from wattune.sweeps.result import StartUp


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WATTUNE_STORE", str(tmp_path / "history.db"))
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("WATTUNE_DEVICE", "sim:a100")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["sweep", "--json", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    found: dict[str, Any] = json.loads(captured.out)
    return found


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 1) -> str:
    assert run(["sweep", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err


def test_a_sweep_starts_with_the_default_and_finds_savings(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--points", "8", "--even")
    assert found["simulated"] is True
    assert found["workload"] == "resnet50:64"
    assert "(simulated)" in found["gpu"]
    trials = found["trials"]
    assert len(trials) == 9
    assert [trials[0][knob] for knob in ("sm_mhz", "mem_mhz", "power_limit_w")] == [None, None, None]
    assert "driver default" in trials[0]["names"]
    assert max(trial["saving_percent"] for trial in trials) > 5
    assert all(0 < trial["energy_error_j"] < 0.01 * trial["energy_j"] for trial in trials)


@pytest.mark.parametrize("knob", ["sm-clock", "power-limit"])
def test_the_csv_plays_back_as_a_gpu(home: Path, capsys: pytest.CaptureFixture[str], knob: str) -> None:
    found = document(capsys, "--points", "5", "--knob", knob, "--csv", "sweep.csv", "--workload", "resnet18:32")
    with (home / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["workload", "sm_mhz", "mem_mhz", "power_limit_w", "time_s", "energy_j"]
    assert {row["workload"] for row in rows} == {"resnet18:32"}
    assert [float(row["time_s"]) for row in rows] == [trial["time_s"] for trial in found["trials"]]
    again = document(capsys, "--device", "table:sweep.csv", "--knob", knob)
    name = "sm_mhz" if knob == "sm-clock" else "power_limit_w"
    for trials in (found["trials"], again["trials"]):
        trials.sort(key=lambda trial: trial[name] or float("inf"), reverse=True)
    for before, after in zip(found["trials"], again["trials"], strict=True):
        assert after["sm_mhz"] == before["sm_mhz"]
        assert after["energy_j"] == pytest.approx(before["energy_j"])


def test_people_see_the_frontier_and_the_word_simulated(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "--points", "6", "--report", "page.html"]) == 0
    page = (home / "page.html").read_text(encoding="utf-8")
    assert "saved per 1,000 GPU-hours" in page.replace("\xa0", " ")
    assert "wattune sweep --points 6 --report page.html</footer>" in page  # with plain spaces, to be copied
    out = capsys.readouterr().out
    for word in ("resnet50:64", "(simulated)", "driver default", "within 5 %", "cheapest", "①", "page.html"):
        assert word in out
    assert "simulated" in page


def test_a_sweep_refines_at_the_slowdown_limit_and_recommends_one_setting(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = document(capsys, "--points", "1000", "--even")["recommended"]
    found = document(capsys)
    assert len(found["trials"]) < 14
    assert found["recommended"]["setting"] == whole["setting"]
    assert found["recommended"]["hold"] == f"wattune hold {whole['setting']} --device sim:a100 -- COMMAND"
    assert 0 < found["recommended"]["slowdown_percent"] <= found["max_slowdown_percent"] == 5.0
    more = document(capsys, "--max-slowdown", "20%")["recommended"]
    assert more["saving_percent"] > whole["saving_percent"]


def test_the_line_that_holds_the_recommendation_can_be_run(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep"]) == 0
    (line,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("hold it: wattune ")]
    words = line.removeprefix("hold it: wattune ").replace("COMMAND", "true").split()
    assert run(words) == 0
    assert "is set to" in capfd.readouterr().err


def test_named_settings_are_tried_and_no_others(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--setting", "1200MHz", "--setting", "900MHz,250W")
    tried = [(trial["sm_mhz"], trial["power_limit_w"]) for trial in found["trials"]]
    assert tried == [(None, None), (1200, None), (900, 250.0)]
    assert found["knob"] is None


def test_nothing_is_recommended_where_nothing_saves(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert document(capsys, "--setting", "210MHz")["recommended"] is None
    assert run(["sweep", "--setting", "210MHz"]) == 0
    out = capsys.readouterr().out
    assert "No setting saved energy within 5 % more time" in out
    assert "hold it" not in out


def test_trials_are_in_the_store(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--points", "3")
    store = open_store(str(home / "history.db"))
    (kept,) = store.runs(kind="sweep")
    assert kept.simulated
    history = store.trials(workload="resnet50:64", gpu="NVIDIA A100-SXM4-40GB", simulated=True)
    assert [trial.cost.energy_j for trial in history] == [trial["energy_j"] for trial in found["trials"]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "simm:a100"], ["simm:a100", "hint: did you mean sim:a100?"]),
        (["--device", "sim:a10000"], ["a10000", "hint:"]),
        (["--workload", "resnet51"], ["resnet51", "did you mean resnet"]),
        (["--workload", "resnet50:none"], ["batch size", "hint:"]),
        (["--device", "table:missing.csv"], ["missing.csv", "hint:"]),
        (["--device", "sim:a100", "--device", "sim:v100"], ["one GPU, and 2 are named", "hint: sweep one after"]),
        (["--max-slowdown", "5"], ["share of 500 %", "did you mean 5%?"]),
        (["--max-slowdown", "much"], ["'much' is no slowdown", "hint:"]),
        (["--setting", "1200"], ["1200 has no unit", "hint: 1200MHz"]),
        (["--setting", "1201MHz"], ["no core clock of 1201 MHz", "nearest to yours: 1200 and 1215"]),
        (["--csv", "no/such/folder.csv"], ["no/such/folder.csv", "hint: make it first"]),
        (["--", "true"], ["cannot run a command", "wattune simulate"]),
    ],
)
def test_bad_input_is_one_line_and_a_hint(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]
) -> None:
    said = complaint(capsys, *arguments)
    assert len(said.splitlines()) == 2
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    "arguments",
    [["--points", "0"], ["--knob", "fan"], ["--iterations", "-1"], ["--even", "--setting", "1200MHz"]],
)
def test_wrong_usage_is_exit_code_2(home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert "--help` shows how it is used" in complaint(capsys, *arguments, code=2)


def test_a_store_that_cannot_be_written_fails_after_the_results(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "folder").mkdir()
    monkeypatch.setenv("WATTUNE_STORE", str(home / "folder"))
    assert run(["sweep", "--points", "2", "--json"]) == 1
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["trials"]) == 3
    assert "the run is kept in" in captured.err


class BusyGpu:
    """A real-looking GPU in wall-less time: each count of a span finds it a second and 100 J further on."""

    def __init__(self) -> None:
        self.spec = GpuSpec(
            name="Part",
            uuid="GPU-1",
            clocks=(ClockTable(1215, (600, 900, 1200)),),
            power_limits=PowerLimits(100.0, 200.0, 200.0),
        )
        self.refresh: Refresh | None = Refresh(0.001, 0.0)
        self.now = Count(0.0, 0.0)
        self.setting = DRIVER_DEFAULT
        self.restored = 0

    def read(self) -> Reading:
        return Reading(time_s=self.now.time_s, energy_j=self.now.energy_j)

    def gpu_time_s(self) -> float:
        return self.now.time_s

    def count(self) -> Count:
        if threading.current_thread() is threading.main_thread():  # the others only sample
            self.now = Count(self.now.time_s + 1.0, self.now.energy_j + 100.0)
        return self.now

    def apply(self, setting: Setting) -> None:
        self.spec.check(setting)
        self.setting = setting

    def restore(self) -> None:
        self.restored += 1


@pytest.fixture
def real(home: Path, monkeypatch: pytest.MonkeyPatch) -> BusyGpu:
    from contextlib import nullcontext

    gpu = BusyGpu()
    monkeypatch.setattr("wattune.cli.sweep.work.open_gpu", lambda _: nullcontext(gpu))
    return gpu


def test_a_command_is_run_at_each_setting(real: BusyGpu, capfd: pytest.CaptureFixture[str]) -> None:
    line = ["--", sys.executable, "-c", "print('training')"]
    assert run(["sweep", "--points", "2", "--json", *line]) == 0
    captured = capfd.readouterr()
    found = json.loads(captured.out)
    assert found["per"] == "run"
    assert found["simulated"] is False
    assert [trial["sm_mhz"] for trial in found["trials"]] == [None, 1200, 600]
    assert captured.err.count("training") == 4  # the driver's default twice
    assert "3 of at most 9: 600 MHz" in captured.err
    assert real.restored == 2  # also once before the first run, after trying whether it may be set


@pytest.mark.parametrize("doubt", [UNFOLLOWED, ONLY_OPTIMIZERS, "twice as fast at half the clock"])
def test_a_sweep_without_recommendation_says_once_what_to_do(doubt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATTUNE_FOLLOW", raising=False)
    said = _no_recommendation(doubt, simulated=True)
    assert said.startswith("nothing is recommended: ")
    assert doubt in said
    assert said.count("wattune simulate --follow") == (doubt != ONLY_OPTIMIZERS)
    assert "hint" not in _no_recommendation(doubt, simulated=False)
    monkeypatch.setenv("WATTUNE_FOLLOW", "library.so")
    assert "hint" not in _no_recommendation(doubt, simulated=True)


def command_work(*trials: tuple[Setting, Measurement]) -> CommandWork:
    program = counted_command(["true"], None, injects=True, grace_s=1.0, to_stderr=True)
    work = CommandWork(BusyGpu(), program, 1)
    for setting, whole in trials:
        work.trials.append(CommandTrial(setting, whole, None, None, None, None, None))
    return work


def test_two_runs_of_the_default_that_differ_are_no_reason_to_doubt_the_clock() -> None:
    times_s = ((DRIVER_DEFAULT, 1.2), (Setting(sm_mhz=1200), 1.15), (DRIVER_DEFAULT, 1.05))
    trials = [(setting, Measurement(time_s, 100.0)) for setting, time_s in times_s]
    assert command_work(*trials).doubt is None
    assert "faster" in (command_work(trials[0], (Setting(sm_mhz=600), Measurement(1.0, 50.0))).doubt or "")


def test_costs_are_those_of_steps_where_every_run_counted_some() -> None:
    start_up, step = Measurement(12.0, 600.0), Measurement(0.1, 30.0)
    work = command_work()
    for setting, longer in ((DRIVER_DEFAULT, 1.0), (Setting(sm_mhz=1200), 1.1)):
        steps = Measurement(100 * longer * step.time_s, 100 * step.energy_j)
        counted = CountedWork("optimizer", 100, steps, 12.0)
        work.trials.append(CommandTrial(setting, start_up + steps, counted, None, None, None, None))
    assert work.per == "step"
    assert [trial.cost.time_s for trial in work.history] == pytest.approx([0.1, 0.11])
    assert work.start_up is None
    work.trials.append(CommandTrial(Setting(sm_mhz=600), start_up, None, None, None, None, None))
    assert work.per == "run"
    assert [trial.cost.time_s for trial in work.history] == pytest.approx([22.0, 23.0, 12.0])


@pytest.mark.parametrize(
    ("idle_s", "words"),
    [(None, "cannot be seen"), (0.0, "cannot be seen"), (3.0, "3.00 s of a run (25 %), and more may be")],
)
def test_whole_runs_are_said_to_have_their_start_up_in_them(idle_s: float | None, words: str) -> None:
    assert words in StartUp(idle_s).words(12.0)


def test_a_command_may_hold_anything(real: BusyGpu, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "--points", "1", "--", sys.executable, "-c", "pass", "[/] [bold] \udcff"]) == 0
    assert "[/] [bold] ?" in capfd.readouterr().out


def test_a_command_that_fails_ends_the_sweep_and_keeps_what_was_measured(
    real: BusyGpu, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = "import os, sys; n = len(os.listdir('runs')); open(f'runs/{n}', 'w').close(); sys.exit(7 if n == 2 else 0)"
    (home / "runs").mkdir()
    assert run(["sweep", "--points", "3", "--", sys.executable, "-c", script]) == 1
    captured = capfd.readouterr()
    assert "exit code 7 at 900 MHz" in captured.err
    assert captured.out == ""
    assert real.restored == 2  # also once before the first run, after trying whether it may be set
    store = open_store(str(home / "history.db"))
    assert len(store.trial_records()) == 2


def test_a_real_gpu_needs_a_command(real: BusyGpu, capfd: pytest.CaptureFixture[str]) -> None:
    assert "needs a command" in complaint(capfd)
    assert "there is no command 'no-such-program'" in complaint(capfd, "--", "no-such-program")
    assert "--workload is for simulated" in complaint(capfd, "--workload", "resnet50", "--", "true")
    assert real.restored == 0  # nothing was set
