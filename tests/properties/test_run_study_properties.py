"""Whatever a recorded sweep looks like: only its settings are set, few of them, and the run keeps the promise."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.benchmarks.run.bound import provable_saving
from wattune.benchmarks.run.sweep import play_sweep, sweeps_of
from wattune.devices.table import parse_sweep

HEAD = "workload,sm_mhz,mem_mhz,power_limit_w,time_s,energy_j\n"

rows = st.lists(st.tuples(st.floats(0.8, 3.0), st.floats(0.5, 1.5)), min_size=1, max_size=9)


def sweep_of(costs, column):
    """Times and energies in any order, at limits or at clocks."""
    lines = []
    for place, (time_s, energy_j) in enumerate(costs):
        value = 100 + 20 * place if column == "limit" else 600 + 90 * place
        setting = f",,{value}" if column == "limit" else f"{value},,"
        lines.append(f"net,{setting},{time_s},{300 * energy_j}\n")
    (sweep,) = sweeps_of(parse_sweep(HEAD + "".join(lines), file="any.csv"))
    return sweep


@settings(max_examples=6, deadline=None)
@given(costs=rows, column=st.sampled_from(["limit", "clock"]), seed=st.integers(0, 5))
def test_any_sweep_is_played_within_its_rows_and_its_promise(costs, column, seed):
    sweep = sweep_of(costs, column)
    outcome = play_sweep(sweep, slowdown=0.05, noise=0.01, seed=seed)
    assert outcome.chosen in sweep.costs
    assert outcome.evaluations <= min(6, len(sweep.costs) - 1)
    assert outcome.run_slowdown <= 0.06
    assert outcome == play_sweep(sweep, slowdown=0.05, noise=0.01, seed=seed)


@settings(max_examples=60, deadline=None)
@given(costs=rows, noise=st.floats(0.0, 0.05), slowdown=st.floats(0.0, 0.3))
def test_the_bound_lies_between_nothing_and_the_oracle(costs, noise, slowdown):
    sweep = sweep_of(costs, "limit")
    oracle = sweep.saving(sweep.oracle(slowdown))
    bound = provable_saving(sweep, slowdown=slowdown, noise=noise)
    assert 0.0 <= bound <= oracle + 1e-9
    assert provable_saving(sweep, slowdown=slowdown, noise=0.0) == pytest.approx(oracle, abs=1e-9)
