"""The slowdown limit is met whenever the program ends: a run of a minute is mostly search."""

import pytest
from short_run import slowdowns

from wattune_bench.family import family

SLOWDOWN_LIMIT = 0.05
ENDS_S = (15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 50.0, 60.0, 75.0, 90.0, 120.0)
JOBS = {member.name: member for member in family(seed=3)}


@pytest.mark.parametrize("name", ["aibench/video-prediction", "gnn/csl-gat", "gnn/collab-gcn"])
def test_with_steps(name):
    assert max(slowdowns("a100", JOBS[name].step, ENDS_S, steps=True)) <= SLOWDOWN_LIMIT


def test_a_clock_below_a_knee_is_left_within_the_slowdown_limit():
    """Found with these very waits: 945 MHz is 3 % slower and 810 MHz 12 %."""
    member = next(one for one in family(seed=12) if one.name == "gnn/mnist-gatedgcn")
    assert max(slowdowns("v100", member.step, ENDS_S, steps=True)) <= SLOWDOWN_LIMIT


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("a100", "aibench/video-prediction"),  # no step is visible in power or in utilisation
        ("a100", "gnn/collab-gatedgcn"),
        ("rtx-3080-ti", "aibench/speech-recognition"),
    ],
)
def test_with_power_and_utilisation_only(gpu, name):
    assert max(slowdowns(gpu, JOBS[name].run, ENDS_S, steps=False)) <= SLOWDOWN_LIMIT
