"""The figures of `wattune bench reliability`; the kills themselves are in `tests/end_to_end/test_kill.py`."""

from wattune.cli.main import run
from wattune_bench.reliability.kills import summed


def round_of(kind, seconds, **changes):
    row = {"kind": kind, "command": "library", "simulated": True, "restored": True, "seconds_to_restore": seconds}
    return row | {"set_after_kill": True, "left_entries": 0, "left_processes": 0} | changes


def test_kills_are_summed_up_by_kind_and_judged():
    bench = summed([round_of("process", 0.1), round_of("process", 0.3), round_of("watchdog", 9.0)])
    assert [(row["kind"], row["kills"], row["median_s"]) for row in bench.rows] == [
        ("process", 2, 0.2),
        ("watchdog", 1, 9.0),
    ]
    assert all(goal.met for goal in bench.goals)
    assert bench.simulated


def test_each_failure_misses_its_goal():
    failures = [
        round_of("group", 20.0, restored=False),
        round_of("stopped", 0.1, left_entries=1),
        round_of("process", 0.1, left_processes=1),
        round_of("watchdog", 20.0, restored=False),
    ]
    bench = summed(failures)
    assert [goal.value for goal in bench.goals] == [1, 20.0, 1, 1, 1]
    assert not any(goal.met for goal in bench.goals)


def test_a_section_that_is_not_there_is_named(capsys):
    assert run(["bench", "reliability", "--section", "nothing"]) == 1
    assert "there is no section 'nothing'" in capsys.readouterr().err
