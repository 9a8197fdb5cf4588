"""A sample of the mutated inputs and of the signals that the reliability bench plays."""

import signal

import pytest

from processes import shared_folder
from wattune.core.errors import InputError
from wattune_bench.reliability.inputs import attacked, input_rows
from wattune_bench.reliability.parsers import Parser, all_parsers
from wattune_bench.reliability.signals import COMMANDS, SignalCase, all_cases, signal_rows


def test_no_parser_ends_with_a_traceback(tmp_path):
    for parser in all_parsers(tmp_path):
        found = attacked(parser, inputs=60, seed=3)
        assert not found.tracebacks, (parser.name, found.tracebacks)
        assert found.accepted + found.refused == 60


def test_tracebacks_and_refused_examples_are_counted():
    def parse(text):
        if "9" in text:
            raise InputError("a nine", hint="write another digit")
        return 1 / len(text)

    found = attacked(Parser("bad", ("123",), parse), inputs=300, seed=1)
    assert found.refused > 0
    assert sum(count for name, count in found.tracebacks.items() if "ZeroDivisionError" in name) > 0
    assert attacked(Parser("strict", ("9",), parse), inputs=0, seed=1).tracebacks.total() == 1


def test_rows_name_the_parser_and_goals_the_worst():
    bench = input_rows(inputs=50, names=["duration", "share"])
    assert [row["parser"] for row in bench.rows] == ["duration", "share"]
    assert [goal.met for goal in bench.goals] == [False, True, True]  # fewer inputs than the goal


def test_every_command_meets_every_signal():
    cases = list(all_cases())
    assert {case.command for case in cases} == set(COMMANDS)
    assert len(cases) == len(set(cases))
    assert {case.signal for case in cases} == {
        signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGTSTP
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "number", "program", "nohup"),
    [("measure", signal.SIGHUP, "plain", True), ("sweep", signal.SIGTERM, "tidy", False)],
)
def test_a_signal_is_taken_as_expected(name, number, program, nohup):
    command = next(command for command in COMMANDS if command.name == name)
    (row,) = signal_rows(cache_dir=shared_folder(), cases=[SignalCase(command, number, program, nohup)]).rows
    assert row["as_expected"], row
