"""What ODPP's networks learn from before they see a program: the simulated workloads of `gpoeo_training`."""

from __future__ import annotations

from functools import cache

import numpy as np

from wattune.levels.run.gpoeo.training import programs_of, settled, training_workloads
from wattune.levels.run.odpp.policy import (
    FLOOR_W,
    Corrections,
    OdppCase,
    correction_inputs,
    learned,
    sampled_mhz,
    searched_mhz,
)
from wattune.levels.run.simulated_program import SimulatedProgram
from wattune.physics.catalog import load_model
from wattune.physics.gpu_parts import Floats

_EVERY = 3
"""Neighbouring clocks teach nearly the same."""


@cache
def trained_corrections(gpu: str) -> Corrections:
    """The networks of a GPU of the catalogue; made when first asked for, which takes some seconds."""
    rows = [_rows(program) for program in programs_of(load_model(gpu), training_workloads())]
    time_inputs, energy_inputs = (np.concatenate([row[place] for row in rows]) for place in (0, 1))
    time, energy = (np.concatenate([row[place] for row in rows]) for place in (2, 3))
    return Corrections(learned(time_inputs, time), learned(energy_inputs, energy))


def _rows(program: SimulatedProgram) -> tuple[Floats, Floats, Floats, Floats]:
    """Inputs of the two networks, and what they should give."""
    clocks = searched_mhz(program.model.spec())
    places = [program.model.clocks[0].sm_mhz.index(mhz) for mhz in clocks]
    time_s, energy_j, held = settled(program, 0)
    base, part = places[-1], program.parts[0]
    column = int(held[base])
    case = OdppCase(float(energy_j[base] / time_s[base]), float(part.busy[0][column]), float(part.traffic[0][column]))
    above_j = energy_j - FLOOR_W * time_s
    targets = [(values / values[base])[places] for values in (time_s, above_j)]
    relative = np.array(clocks) / clocks[-1]
    samples = sampled_mhz(clocks)
    curves = [np.interp(clocks, samples, values[[clocks.index(mhz) for mhz in samples]]) for values in targets]
    inputs = [correction_inputs(curve, relative, case)[::_EVERY] for curve in curves]
    return inputs[0], inputs[1], targets[0][::_EVERY], targets[1][::_EVERY]
