"""`wattune bench live` with real processes, for a second or two each."""

import json

import pytest

from command import Command

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
    assert json.loads(again.stdout)["rows"] == sorted(found["rows"], key=lambda row: row["arm"])
