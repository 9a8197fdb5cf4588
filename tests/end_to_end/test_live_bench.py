"""`wattune bench live` with real processes, for a few seconds."""

import json
import signal

import psutil
import pytest

from command import Command
from processes import wait_until

pytest.importorskip("torch")


def test_a_program_that_ends_untuned_has_saved_nothing(tmp_path):
    command = Command(tmp_path)
    options = ("--gpu", "a100", "--switching", "ideal", "--workload", "bert-base:8", "--seconds", "1")
    done = command("bench", "live", *options, "--arm", "none", "--arm", "run", "--traces", "saved", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(row["arm"], row["problem"]) for row in found["rows"]] == [("none", None), ("run", None)]
    for row in found[
        "rows"
    ]:  # a second is too short to tune; steps end a little within an iteration, whose power varies
        assert row["true_saving_percent"] == pytest.approx(0, abs=0.1)
        assert row["true_slowdown_percent"] == pytest.approx(0, abs=0.1)
        assert row["claimed_saving_percent"] in (None, 0)
    again = command("bench", "live", "--from", "saved", "--json")
    assert json.loads(again.stdout)["rows"] == found["rows"]


def test_a_bench_that_is_stopped_leaves_no_program(tmp_path):
    command = Command(tmp_path)
    process = command.start("bench", "live", "--arm", "run", "--gpu", "a100", "--switching", "ideal")
    wait_until(lambda: list(tmp_path.glob("wattune-live-*/*.stamps")), process)
    program = psutil.Process(int(next(tmp_path.glob("wattune-live-*/*.stamps")).stem))
    process.terminate()
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert not program.is_running()
    assert not list(tmp_path.glob("wattune-live-*"))
