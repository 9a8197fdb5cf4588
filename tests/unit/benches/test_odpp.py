"""ODPP's curve, the network that corrects it, and the choice."""

import numpy as np
import pytest

from plain_program import PlainProgram, played
from wattune.core.gpu_spec import ClockTable, GpuSpec
from wattune.physics.catalog import load_model
from wattune_bench.run.odpp import (
    OdppCase,
    OdppPolicy,
    between_mhz,
    correction_inputs,
    pretrained,
    sampled_mhz,
    searched_mhz,
    untaught,
)

SPEC = load_model("3080ti").spec()


def test_the_clocks_are_those_of_the_released_program():
    clocks = searched_mhz(SPEC)
    assert (clocks[0], clocks[-1]) == (450, 1920)
    assert sampled_mhz(clocks) == (450, 945, 1425, 1920)
    assert between_mhz(clocks) == (690, 1185, 1665)


def test_few_clocks_are_measured_once_each():
    clocks = (900, 1005, 1410)
    assert sampled_mhz(clocks) == clocks
    assert between_mhz(clocks) == ()
    spec = GpuSpec(name="Few", uuid="GPU-few", clocks=(ClockTable(None, clocks),), power_limits=None)
    windows = played(OdppPolicy(learn=untaught), PlainProgram(spec))
    assert windows[-1].setting.sm_mhz in clocks


@pytest.fixture(scope="module")
def corrections():
    """Networks trained on programs of the same kind."""
    clocks = searched_mhz(SPEC)
    random = np.random.default_rng(3)
    rows = []
    for host_s, compute_s, memory_s in random.uniform(0.05, 1.0, (40, 3)):
        program = PlainProgram(SPEC, host_s, compute_s, memory_s)
        rows.append(_taught(program, clocks))
    inputs = [np.concatenate([row[kind] for row in rows]) for kind in (0, 1)]
    targets = [np.concatenate([row[kind] for row in rows]) for kind in (2, 3)]
    return pretrained(inputs[0], targets[0]), pretrained(inputs[1], targets[1])


def _taught(program, clocks):
    from wattune.core.setting import Setting

    top = Setting(clocks[-1])
    window = PlainProgram.window(program, _order(top))
    case = OdppCase(program.power_w(top), window.sm_util, window.mem_util)
    targets = [
        np.array([cost(Setting(mhz)) for mhz in clocks]) / cost(top) for cost in (program.step_s, program.energy_j)
    ]
    samples = sampled_mhz(clocks)
    curves = [np.interp(clocks, samples, [values[clocks.index(mhz)] for mhz in samples]) for values in targets]
    relative = np.array(clocks) / clocks[-1]
    inputs = [correction_inputs(curve, relative, case)[::3] for curve in curves]
    return inputs[0], inputs[1], targets[0][::3], targets[1][::3]


def _order(setting):
    from wattune.core.window import Order, Purpose

    return Order(setting=setting, purpose=Purpose.TRIAL, least_s=10.0, most_s=10.0)


def test_with_corrections_the_choice_is_about_as_good_as_with_perfect_knowledge(corrections):
    program = PlainProgram(SPEC)
    held = played(OdppPolicy(learn=lambda _: corrections), program)[-1].setting
    assert program.energy_j(held) < 0.97 * program.energy_j()
    assert program.step_s(held) / program.step_s() - 1 < 0.12
