"""The best mixture of two settings: the optimum of a linear program, checked by brute force."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from test_run_policy import A100, seen

from wattune.core.measurement import Measurement
from wattune.core.objective import LeastEnergy
from wattune.core.setting import Setting
from wattune.core.window import PhaseCost, Purpose
from wattune.levels.run.mixture import best_mixture, best_single
from wattune.levels.run.policy import CurvePolicy
from wattune_bench.run.table import RecordedWorkload

# On a grid: a slack just below zero is zero for the general solver, which has a tolerance.
slacks = st.integers(-1000, 1000).map(lambda whole: whole / 1000)
columns = st.lists(st.tuples(slacks, st.floats(0.1, 2.0)), min_size=1, max_size=8)


def program(slack, value):
    """The best mean value of any mixture, by a general solver; None where no mixture meets the limit."""
    found = linprog(value, A_ub=[[-one for one in slack]], b_ub=[0.0], A_eq=[[1.0] * len(value)], b_eq=[1.0])
    return found.fun if found.success else None


@settings(max_examples=100, deadline=None)
@given(columns)
def test_two_settings_are_as_good_as_any_mixture(rows):
    slack, value = (np.array(column) for column in zip(*rows, strict=True))
    best, wanted = best_mixture(slack, value, np.ones(len(slack), dtype=bool)), program(slack, value)
    if best is None:
        assert (slack < 0).all()
        return
    assert best.value == pytest.approx(wanted, abs=1e-6)
    assert (1 - best.share) * slack[best.fast] + best.share * slack[best.slow] >= -1e-9
    assert best.price >= 0
    assert best_single(value, slack >= 0.0).value >= best.value - 1e-12


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.8, 2.0), st.floats(0.5, 1.5)), min_size=1, max_size=8),
    st.floats(0.0, 0.3),
)
def test_the_bound_of_the_bench_is_the_optimum_of_the_linear_program(rows, slowdown):
    costs = {Setting(1000 + 15 * place): Measurement(*row) for place, row in enumerate(rows)}
    workload = RecordedWorkload.of("any.csv", "net", costs)
    default = workload.costs[workload.reference]
    slack = [default.time_s * (1 + slowdown) - cost.time_s for cost in workload.costs.values()]
    wanted = program(slack, [cost.energy_j / default.energy_j for cost in workload.costs.values()])
    assert workload.mixture_saving(slowdown) == pytest.approx(1 - wanted, abs=1e-6)


COARSE = (Setting(1170), Setting(1320), Setting(1410))
"""Clocks between which the limit of 5 % lies."""


def exact_run(policy, seconds, **more):
    """The windows of a run in which step times are exact."""
    windows, passed_s = (), 0.0
    while passed_s < seconds:
        order = policy.step(windows, A100)
        own = seen(
            order.setting,
            order.purpose,
            error=1e-9,
            start_s=passed_s,
            length_s=order.most_s,
            **{"source": "steps", **more},
        )
        windows, passed_s = (*windows, own), passed_s + order.most_s
    return windows


def slowdowns(windows):
    """The slowdown of the whole run up to the end of each window."""
    took_s = np.cumsum([window.cost.time_s for window in windows])
    base_s = windows[0].step_time_s
    return took_s / np.cumsum([window.cost.time_s * base_s / window.step_time_s for window in windows]) - 1


@pytest.mark.parametrize("slowdown", [0.02, 0.05, 0.1])
def test_a_run_with_exact_step_times_never_exceeds_its_limit(slowdown):
    policy = CurvePolicy(objective=LeastEnergy(slowdown), candidates=COARSE, baseline=Setting(1410))
    windows = exact_run(policy, 3600.0)
    found = slowdowns(windows)
    assert found.max() <= slowdown + 1e-9
    assert found[-1] >= 0.9 * slowdown


def test_turns_are_long_and_beat_the_best_single_clock():
    policy = CurvePolicy(objective=LeastEnergy(0.05), candidates=COARSE, baseline=Setting(1410))
    turns = exact_run(policy, 3600.0)
    alone = exact_run(replace(policy, by_turns=False), 3600.0)
    energy = [sum(one.power_w * one.cost.time_s for one in run) for run in (turns, alone)]
    work = [sum(one.cost.time_s / one.step_time_s for one in run) for run in (turns, alone)]
    assert energy[0] / work[0] < energy[1] / work[1]
    held = [one for one in turns if one.purpose is Purpose.HOLD and one.start_s > 300.0]
    assert len({one.setting for one in held}) > 1
    lengths_s, last = [], None
    for one in held:
        if one.setting == last:
            lengths_s[-1] += one.cost.time_s
        else:
            lengths_s.append(one.cost.time_s)
        last = one.setting
    assert min(lengths_s[1:-1]) >= 60.0


def held_late(windows):
    return {one.setting for one in windows if one.purpose is Purpose.HOLD and one.start_s > 1200.0}


PHASES = tuple(PhaseCost(name, Measurement(0.5, 50.0)) for name in ("forward", "backward"))


@pytest.mark.parametrize(
    "more", [{"source": "period"}, {"source": "steps", "phases": PHASES}], ids=["period", "phases"]
)
def test_there_are_no_turns_by_periods_nor_with_phases(more):
    policy = CurvePolicy(objective=LeastEnergy(0.05), candidates=COARSE, baseline=Setting(1410))
    assert len(held_late(exact_run(policy, 3600.0, source="steps"))) == 2
    windows = exact_run(policy, 3600.0, **more)
    assert slowdowns(windows).max() <= 0.05 + 1e-9
    assert len(held_late(windows)) == 1


def test_turns_that_save_little_are_not_taken():
    # At 1290 MHz the program is 4.65 % slower.
    policy = CurvePolicy(objective=LeastEnergy(0.048), candidates=tuple(map(Setting, range(1005, 1411, 15))))
    assert held_late(exact_run(policy, 3600.0)) == {Setting(1290)}


def test_a_run_of_nine_minutes_changes_clocks_a_few_times():
    policy = CurvePolicy(objective=LeastEnergy(0.05), candidates=COARSE, baseline=Setting(1410))
    settings = [one.setting for one in exact_run(policy, 540.0)]
    assert sum(one != other for one, other in pairwise(settings)) <= 7
