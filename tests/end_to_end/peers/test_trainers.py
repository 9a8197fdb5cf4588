"""The callbacks in small trainings with released trainers, on the CPU, whose GPUs are emulated behind NVML."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import peer_environment
import pytest

from command import Command

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed: pip install 'wattune[torch]'"),
]

TRAININGS = Path(__file__).resolve().parent / "trainings"
SOURCE = Path(__file__).resolve().parents[3] / "src"
STEPS = 120
PREFIX = "wattune_simulated/"
RUNS = ("huggingface_run.py", "lightning_run.py", "plain_run.py")


class Trainings:
    """Runs trainings under `wattune simulate`, which makes each optimizer step as long as an iteration of the GPU."""

    def __init__(self, folder, python):
        self.folder, self.python = folder, python
        self.command = Command(folder)

    def __call__(self, script, *arguments, ranks=1, gpus=1, options=()):
        """Train with a script, and return what each rank saw."""
        words = (str(TRAININGS / "ranked.py"), str(ranks), script, str(self.folder), *arguments)
        self.program(*words, options=("--count", str(gpus), *options))
        return [json.loads((self.folder / f"{rank}.json").read_text()) for rank in range(ranks)]

    def program(self, *words, options=()):
        """Run a program of Python, and return what it printed to standard error."""
        path = os.pathsep.join(map(str, (SOURCE, TRAININGS)))
        simulate = ["simulate", "--json", "--workload", "resnet50:16", "--follow", *options, "--"]
        # Bytecode of the trainers is kept in their own folder: compiling it takes longer than the trainings.
        bytecode = f"PYTHONPYCACHEPREFIX={peer_environment.TRAINERS_FOLDER / 'bytecode'}"
        prepend = 'PYTHONPATH="$1${PYTHONPATH:+:$PYTHONPATH}"; export PYTHONPATH; shift; exec "$@"'
        line = [sys.executable, "-m", "wattune", *simulate, "env", "PYTHONDONTWRITEBYTECODE=", bytecode]
        line += ["sh", "-c", prepend, "sh", path, str(self.python), *words]
        environment = self.command.environment | {"HOME": str(self.folder)}
        done = subprocess.run(line, env=environment, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stderr

    def stored(self):
        return json.loads(self.command("history", "--json").stdout)["runs"]


@pytest.fixture(scope="session")
def trainers_python():
    try:
        return peer_environment.ensure_trainers(Path(sysconfig.get_path("purelib")))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the trainers cannot be installed: {error}")


@pytest.fixture
def train(trainers_python, emulated_library, tmp_path):
    return Trainings(tmp_path, trainers_python)


def figures(seen):
    """The rows of a logger that have figures of ours."""
    return [row for row in seen["rows"] if any(name.startswith(PREFIX) for name in row)]


def check_rows(seen, *, gpus):
    """Every row of the logger is of a step at which the trainer logs too, and consistent in itself."""
    rows = figures(seen)
    assert rows
    steps = {row["step"] for row in seen["rows"] if "loss" in row}
    for row in rows:
        assert row["step"] in steps
        assert row[PREFIX + "step_energy_j"] > 0
        power_w = row[PREFIX + "step_energy_j"] / row[PREFIX + "step_time_s"]
        assert power_w == pytest.approx(row[PREFIX + "power_w"])
        assert 50 * gpus < power_w < 1.15 * 400 * gpus  # what each GPU of the job draws, counted once
        assert "wattune/" not in " ".join(row)
    totals = [row[PREFIX + "total_energy_j"] for row in rows]
    assert totals == sorted(totals)
    return totals[-1]


@pytest.mark.parametrize("script", RUNS[:2])  # that of the page covers the third
def test_a_training_is_measured_tuned_logged_and_stored(train, script):
    (seen,) = train(script, str(STEPS), "0.05")
    assert seen["steps"] == STEPS  # of the optimizer: each takes two batches
    assert seen["disabled"] is None
    total_j = check_rows(seen, gpus=1)
    assert total_j <= 1.1 * seen["energy_j"]
    (line,) = seen["lines"]
    assert f"{STEPS} steps" in line  # and their length, where it was seen for long enough
    assert "(simulated)" in line
    (run,) = train.stored()
    assert run["kind"] == "run"
    assert run["simulated"] is True
    assert run["energy_j"] == pytest.approx(seen["energy_j"])
    assert run["details"]["steps"] == STEPS
    if script == "huggingface_run.py":  # its history of logs has the same rows as its loggers
        assert seen["rows"] == [row | {"step": row["step"]} for row in seen["history"]]


def test_a_clock_is_held_logged_and_reported(train):
    (seen,) = train("plain_run.py", "5000", "0.05", "held")
    assert seen["disabled"] is None
    assert seen["held_mhz"] < 1410
    # The last row may be of a window at the driver default, which has no clock.
    assert any(row.get(PREFIX + "sm_mhz", 1410) < 1410 for row in figures(seen))
    assert re.search(r"; time \+\d.*, energy −\d", seen["lines"][0])
    assert f"{seen['held_mhz']:g} MHz for " in seen["lines"][0]
    (run,) = train.stored()
    assert run["details"]["held"] == f"{seen['held_mhz']:g} MHz"
    assert run["details"]["saving_percent"] > 0


@pytest.mark.parametrize("script", RUNS)
def test_one_rank_reports_for_all_and_each_gpu_is_counted_once(train, script):
    first, second = train(script, str(STEPS), "0.05", ranks=2, gpus=2)
    assert first["steps"] == second["steps"] == STEPS
    check_rows(first, gpus=2)
    assert "2 × NVIDIA" in first["lines"][0]
    assert (second["rows"], second["lines"], second["energy_j"]) == ([], [], None)
    (run,) = train.stored()
    assert len({gpu["uuid"] for gpu in run["gpus"]}) == len(run["gpus"]) == 2
    assert run["energy_j"] == pytest.approx(first["energy_j"])


def test_a_gpu_that_two_ranks_share_is_counted_once(train):
    first, second = train("plain_run.py", str(STEPS), "0.05", ranks=2, gpus=1)
    check_rows(first, gpus=1)
    assert (first["disabled"], second["disabled"]) == (None, None)
    (run,) = train.stored()
    assert len(run["gpus"]) == 1


def test_a_training_is_only_measured_without_a_goal_and_needs_no_privilege(train):
    (seen,) = train("plain_run.py", str(STEPS), options=("--unprivileged",))
    check_rows(seen, gpus=1)
    assert seen["windows"] == []
    (run,) = train.stored()
    assert run["kind"] == "measure"


def test_a_gpu_that_may_not_be_set_ends_the_tuning_and_not_the_training(train):
    (seen,) = train("plain_run.py", "300", "0.05", options=("--unprivileged",))
    assert seen["steps"] == 300
    check_rows(seen, gpus=1)


PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "use-with-trainers.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("place", range(len(BLOCKS)))
def test_the_programs_of_the_page_run_as_written(train, place, tmp_path):
    (tmp_path / "page.py").write_text(BLOCKS[place])
    said = train.program(str(tmp_path / "page.py"))
    assert "simulated" in said
    assert "100 steps" in said
    (run,) = train.stored()
    assert run["name"] == "page.py"
