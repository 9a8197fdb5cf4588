"""What a partition takes at choices that were not measured: a physical model plus processes of its residuals.

Notation
    log t, log E    modelled one after the other: model + columns with unknown weights + smooth residual + roughness
    model           the generic form of `form`, fitted to the history; the columns are its derivatives by its parameters

Length scales start from those typical of each knob: launch positions differ abruptly, clocks and block sizes smoothly.
From `fit_from` measurements on they are fitted, so that a rough sweep is recognised as one. Typical values were chosen
on simulated and made-up sweeps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattune.levels.kernel.partition.form import FittedForm, Knobs, fit_energy, fit_time
from wattune.levels.kernel.partition.search import (
    COMM_BLOCK,
    COMM_SMS,
    END,
    LAUNCH,
    SM_MHZ,
    C,
    Floats,
    MeasuredChoices,
    PartitionSpace,
)
from wattune.search.gaussian_process import GaussianProcess, Hyper, HyperPrior, Inputs, condition, fit_process

_LENGTHS = {LAUNCH: 0.2, END: 1.0, COMM_SMS: 0.3, COMM_BLOCK: 1.0, SM_MHZ: 0.7}
_OTHER_LENGTH = 0.5
_SMOOTH_SD, _ROUGH_SD = 0.022, 0.003
_SPREADS = (0.5, 0.7, 0.5)

_CONSTANT_SD = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Surrogate:
    """Expected logarithms of time and energy at every choice, and the processes they come from."""

    processes: tuple[GaussianProcess, GaussianProcess]
    inputs: tuple[Inputs, Inputs]
    model: Floats
    """(choices, 2): the part that is certain."""
    logs: Floats
    """(choices, 2)"""
    sd: Floats

    @classmethod
    def of(
        cls, processes: tuple[GaussianProcess, GaussianProcess], inputs: tuple[Inputs, Inputs], model: Floats
    ) -> Surrogate:
        predicted = [process.predict(rows) for process, rows in zip(processes, inputs, strict=True)]
        means, sds = (np.stack(columns, axis=1) for columns in zip(*predicted, strict=True))
        return cls(processes, inputs, model, model + means, sds)

    def believed(self, place: int) -> Surrogate:
        """Take a choice as measured with its expected value."""
        at = np.array([place])
        values = (self.logs - self.model)[at]
        first, second = (
            process.with_points(rows.taken(at), values[:, column])
            for column, (process, rows) in enumerate(zip(self.processes, self.inputs, strict=True))
        )
        return Surrogate.of((first, second), self.inputs, self.model)

    def smoothed(self, seen: MeasuredChoices) -> tuple[Floats, Floats]:
        """Return (measured choices, 2) logarithms and standard deviations of what was measured, noise averaged out."""
        count = len(seen.places)
        found = [process.smoothed() for process in self.processes]
        means, sds = (np.stack(columns, axis=1)[:count] for columns in zip(*found, strict=True))
        return self.model[seen.places] + means, sds


def coordinates(space: PartitionSpace[C]) -> Floats:
    """Return the features that vary, each from 0 to 1; places of launches by rank, sequential execution apart."""
    columns = dict(zip(space.names, space.features.T, strict=True))
    sequential = columns[LAUNCH] < 0 if LAUNCH in columns else np.zeros(len(space), dtype=bool)
    scaled = [_scaled(name, columns[name], sequential) for name in varying(space)]
    return np.stack(scaled, axis=1) if scaled else np.zeros((len(space), 1))


def varying(space: PartitionSpace[C]) -> tuple[str, ...]:
    """Return the names of features with more than one value."""
    return tuple(name for name, values in zip(space.names, space.features.T, strict=True) if np.ptp(values) > 0)


def _scaled(name: str, values: Floats, sequential: NDArray[np.bool_]) -> Floats:
    if name in (LAUNCH, END):
        known = np.unique(values[~sequential])
        return np.where(sequential, -0.5, np.searchsorted(known, values) / max(len(known) - 1, 1))
    values = np.log(values) if name == COMM_BLOCK else values
    return np.asarray((values - values.min()) / np.ptp(values))


def fit_surrogate(space: PartitionSpace[C], seen: MeasuredChoices, *, fit_from: int) -> Surrogate:
    """Fit model and processes to what was seen."""
    places, knobs = coordinates(space), Knobs.of(space.names, space.features)
    lengths = [_LENGTHS.get(name, _OTHER_LENGTH) for name in varying(space)] or [1.0]
    prior = HyperPrior(Hyper(np.array(lengths), _SMOOTH_SD, _ROUGH_SD), *_SPREADS)

    def process(form: FittedForm, column: int) -> tuple[GaussianProcess, Inputs]:
        inputs = Inputs(places, form.basis)
        rows, values = inputs.taken(seen.places), seen.logs[:, column] - form.logs[seen.places]
        noise = seen.variance[:, column]
        if len(values) < fit_from:
            return condition(prior.typical, rows, values, noise), inputs
        return fit_process(rows, values, prior=prior, noise=noise), inputs

    found = fit_time(knobs, seen.places, seen.logs[:, 0])
    first_form = _with_constant(found.form)
    first, first_inputs = process(first_form, 0)
    expected = first.predict(first_inputs)[0] + first_form.logs
    expected[seen.places] = seen.logs[:, 0]
    second_form = _with_constant(fit_energy(knobs, seen.places, seen.logs[:, 1], expected, found.active))
    second, second_inputs = process(second_form, 1)
    model = np.stack([first_form.logs, second_form.logs], axis=1)
    return Surrogate.of((first, second), (first_inputs, second_inputs), model)


def _with_constant(form: FittedForm) -> FittedForm:
    return FittedForm(form.logs, np.pad(form.basis, ((0, 0), (0, 1)), constant_values=_CONSTANT_SD))
