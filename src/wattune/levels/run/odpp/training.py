"""Pretraining of ODPP's networks on the simulated workloads of `gpoeo.training`."""

from __future__ import annotations

from functools import cache

import numpy as np

from wattune.levels.run.gpoeo.training import programs_of, settled, training_workloads
from wattune.levels.run.odpp.policy import (
    FLOOR_W,
    Corrections,
    OdppCase,
    correction_inputs,
    pretrained,
    sampled_mhz,
    searched_mhz,
)
from wattune.levels.run.simulated_program import SimulatedProgram
from wattune.physics.catalog import load_model
from wattune.physics.gpu_parts import Floats

_EVERY = 3
"""Neighbouring clocks are nearly equal."""


@cache
def trained_corrections(gpu: str) -> Corrections:
    """Train the networks of a GPU of the catalogue, once; this takes some seconds."""
    rows = [_rows(program) for program in programs_of(load_model(gpu), training_workloads())]
    time_inputs, energy_inputs = (np.concatenate([row[place] for row in rows]) for place in (0, 1))
    time, energy = (np.concatenate([row[place] for row in rows]) for place in (2, 3))
    return Corrections(pretrained(time_inputs, time), pretrained(energy_inputs, energy))


def _rows(program: SimulatedProgram) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the inputs of the two networks and their targets."""
    clocks = searched_mhz(program.model.spec())
    places = [program.model.clocks[0].sm_mhz.index(mhz) for mhz in clocks]
    time_s, energy_j, held = settled(program, 0)
    base = places[-1]
    column = int(held[base])
    busy, traffic = float(program.busy[0][column]), float(program.traffic[0][column])
    case = OdppCase(float(energy_j[base] / time_s[base]), busy, traffic)
    above_j = energy_j - FLOOR_W * time_s
    targets = [(values / values[base])[places] for values in (time_s, above_j)]
    relative = np.array(clocks) / clocks[-1]
    samples = sampled_mhz(clocks)
    curves = [np.interp(clocks, samples, values[[clocks.index(mhz) for mhz in samples]]) for values in targets]
    inputs = [correction_inputs(curve, relative, case)[::_EVERY] for curve in curves]
    return inputs[0], inputs[1], targets[0][::_EVERY], targets[1][::_EVERY]
