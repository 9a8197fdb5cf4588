from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from wattune.cli.main import run
from wattune.cli.monitor import read_all, screen
from wattune.core.errors import DeviceLost
from wattune.core.gpu_spec import GpuSpec
from wattune.core.reading import Count, Reading
from wattune.core.refresh import Refresh
from wattune.core.setting import Setting
from wattune.render.monitor_view import GpuProcess, Watched


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WATTUNE_STORE", str(tmp_path / "history.db"))
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("WATTUNE_DEVICE", "sim:a100")
    monkeypatch.setenv("COLUMNS", "140")
    return tmp_path


class FadingGpu:
    """A GPU that answers a few times and is then lost."""

    def __init__(self, answers: int) -> None:
        self.spec = GpuSpec(name="Part", uuid="GPU-1", clocks=(), power_limits=None)
        self.refresh: Refresh | None = None
        self.answers = answers
        self.reads = 0

    def read(self) -> Reading:
        self.reads += 1
        if self.reads > self.answers:
            raise DeviceLost("Part fell off the bus", hint="reset it")
        return Reading(time_s=float(self.reads), power_w=100.0 + self.reads, energy_j=100.0 * self.reads)

    def count(self) -> Count:
        return Count(0.0, 0.0)

    def apply(self, setting: Setting) -> None:
        raise AssertionError(f"watching sets nothing, and surely not {setting}")

    def restore(self) -> None:
        raise AssertionError("watching sets nothing, so there is nothing to restore")


def shown(watched: tuple[Watched, ...], width: int, height: int) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height, color_system=None)
    with console.capture() as capture:
        console.print(screen(watched, width=width, height=height), end="")
    return capture.get().splitlines()


@pytest.mark.parametrize(("width", "height"), [(120, 35), (80, 24), (40, 12), (200, 60)])
@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_the_screen_never_overflows(width: int, height: int, gpus: int) -> None:
    fading = tuple(FadingGpu(5) for _ in range(gpus))
    watched = tuple(Watched(gpu.spec) for gpu in fading)
    for _ in range(4):
        watched = read_all(fading, watched)
    lines = shown(watched, width, height)
    assert len(lines) <= max(height, gpus + 3)
    assert all(len(line) <= width for line in lines)
    assert "104 W" in "\n".join(lines)


def test_several_gpus_have_a_graph_each_or_one_together() -> None:
    fading = tuple(FadingGpu(5) for _ in range(8))
    watched = read_all(fading, tuple(Watched(gpu.spec) for gpu in fading))
    assert any("power of all 8" in line for line in shown(watched, 120, 30))
    assert sum("power over" in line for line in shown(watched, 120, 80)) == 8


def test_a_lost_gpu_is_reported_and_the_others_continue() -> None:
    gpus = (FadingGpu(1), FadingGpu(9))
    watched = tuple(Watched(gpu.spec) for gpu in gpus)
    for _ in range(3):
        watched = read_all(gpus, watched)
    text = "\n".join(shown(watched, 160, 30))
    assert "fell off the bus" in text
    assert "103 W" in text


def test_processes_are_listed_with_user_and_command_and_cut_to_the_screen() -> None:
    fading = (FadingGpu(5),)
    (gpu,) = read_all(fading, (Watched(fading[0].spec),))
    found = tuple(GpuProcess(100 + n, n << 30, "ada", f"python train.py --run {n} {'x' * 90}") for n in range(9))
    for width in (60, 120):
        lines = shown((replace(gpu, processes=found),), width, 24)
        assert len(lines) <= 24
        assert all(len(line) <= width for line in lines)
        assert any("100" in line and "ada" in line and "python train.py --run 0" in line for line in lines)
        assert any("and 4 more" in line for line in lines)


def test_once_prints_one_snapshot_of_a_gpu_at_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["monitor", "--once", "--device", "sim:a100", "--device", "sim:v100"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 3
    assert out.count("(simulated)") == 2


def test_json_is_one_document_and_marks_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["monitor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["simulated"] is True
    (gpu,) = found["gpus"]
    assert gpu["power_w"] > 100
    assert gpu["energy_j"] is None
    assert gpu["sm_util"] == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--device", "sim:z9"], "z9"),
        (["--workload", "resnet5"], "did you mean resnet"),
        ([], "needs a terminal"),
    ],
)
def test_bad_input_is_one_line_and_a_hint(capsys: pytest.CaptureFixture[str], arguments: list[str], word: str) -> None:
    assert run(["monitor", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 2
    assert word in captured.err
