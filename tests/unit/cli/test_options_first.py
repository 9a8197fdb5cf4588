"""Wrong options are refused before a GPU is opened, so that the refusal is all that a user reads."""

import pytest

from wattune.cli.main import run
from wattune.devices.open import warn_once

JOB = "job run n --batch-sizes 1,2 --default 1 --target 1 --metric-pattern a([0-9])"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTUNE_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("WATTUNE_STORE", str(tmp_path / "history.db"))
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.delenv("WATTUNE_DEVICE", raising=False)
    monkeypatch.chdir(tmp_path)
    warn_once.cache_clear()
    yield tmp_path
    warn_once.cache_clear()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("run --max-slowdown 5 -- touch ran", "5 is a share of 500 %"),
        ("run --max-slowdown soon -- touch ran", "'soon' is no slowdown"),
        ("run --objective none -- touch ran", "'none' is no objective"),
        ("run --objective deadline:90m -- touch ran", "a running program cannot be tuned for a deadline"),
        ("run --policy nowhere:X -- touch ran", "the policy nowhere:X cannot be imported"),
        ("run --policy zeus --objective edp -- touch ran", "zeus knows no objective but"),
        ("run --workload none -- touch ran", "there is no workload 'none'"),
        ("measure --workload none -- touch ran", "there is no workload 'none'"),
        ("measure -- nowhere", "there is no command 'nowhere'"),
        ("hold 1200MHz --workload none -- touch ran", "there is no workload 'none'"),
        ("sweep --max-slowdown 5", "5 is a share of 500 %"),
        ("sweep --workload none", "there is no workload 'none'"),
        ("sweep --setting 1200", "1200 has no unit"),
        ("sweep --report page.pdf", "a report cannot be written as page.pdf"),
        ("sweep -- nowhere", "there is no command 'nowhere'"),
        ("monitor --once --workload none", "there is no workload 'none'"),
        (f"{JOB} -- nowhere", "there is no command 'nowhere'"),
        (f"{JOB} --workload none -- touch ran", "there is no workload 'none'"),
        (f"{JOB} -- touch {{size}}", "there is no placeholder {size}"),
        ("layers measure --model none --out out.csv", "there is no workload 'none'"),
        ("layers measure --model none.py:make --out out.csv", "there is no file none.py"),
        ("layers switch-latency --clocks a,b", "'a,b' is not a list of clocks"),
        ("layers switch-latency --workload none", "there is no workload 'none'"),
        ("layers switch-latency -- nowhere", "there is no command 'nowhere'"),
    ],
)
def test_a_wrong_option_is_refused_before_a_gpu_is_opened(home, capfd, line, error):
    assert run(line.split()) == 1
    first, hint = capfd.readouterr().err.splitlines()
    assert first.startswith(f"error: {error}")
    assert hint.startswith("hint: ")
    assert not (home / "ran").exists()


@pytest.mark.parametrize("command", ["measure", "hold 1200MHz", "run", JOB])
def test_a_gpu_without_wall_time_is_refused_before_the_program_starts(home, capfd, command):
    device = "table:sweep.csv"
    assert run([*command.split(), "--device", device, "--", "touch", "ran"]) == 1
    first, hint = capfd.readouterr().err.splitlines()
    assert first == f"error: {device} is played from a file, and no time passes on it while a program runs"
    assert "sim:a100" in hint
    assert not (home / "ran").exists()
