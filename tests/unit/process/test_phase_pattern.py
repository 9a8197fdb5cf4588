"""Phases of a step that a program prints."""

import pytest

from wattune.core.errors import InputError
from wattune.process.patterns import PhasePattern, PhaseReport


@pytest.mark.parametrize(
    ("pattern", "line", "name"),
    [
        (r"phase (\w+)", "phase backward", "backward"),
        (r"(\d+): (?P<phase>[a-z-]+)", "17: all-reduce", "all-reduce"),
        (r"phase (\w+)", "loss 0.1", None),
        (r"phase (\w*)", "phase ", None),
    ],
)
def test_the_name_of_a_phase_is_in_the_group(pattern, line, name):
    assert PhasePattern.parse(pattern).read(line) == (None if name is None else PhaseReport(name))


@pytest.mark.parametrize(
    ("pattern", "why"), [("phase", "no group"), ("(", "no regular expression"), (r"(\d) (\w)", "none is called phase")]
)
def test_a_pattern_that_names_no_phase_is_refused(pattern, why):
    with pytest.raises(InputError, match=why):
        PhasePattern.parse(pattern)
