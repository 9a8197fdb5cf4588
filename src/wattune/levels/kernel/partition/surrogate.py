"""What a partition takes at choices that were not measured: a physical model plus processes of its residuals.

Notation
    log t, log E    modelled one after the other: model + columns with unknown weights + smooth residual + roughness
    model           the prior of the space where it has one, else the generic form of `form`, fitted to the
                    history; the columns are then the derivatives of the form by its parameters

Length scales start from those typical of each knob: launch positions differ abruptly, clocks and block sizes smoothly.
From `fit_from` measurements on they are fitted, so that a rough sweep is recognised as one. Typical values were chosen
on simulated and made-up sweeps. Residuals of other partitions enter as measurements at a distance.
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
_PRIOR_LENGTHS = {**_LENGTHS, LAUNCH: 0.15, COMM_SMS: 0.5}
_OTHER_LENGTH = 0.5
_PARTITION_LENGTH = 1.0
_SMOOTH_SD, _ROUGH_SD, _PRIOR_ROUGH_SD = 0.022, 0.003, 0.0015
_SPREADS = (0.5, 0.7, 0.5)

_CONSTANT_SD = 0.05
_PRIOR_CONSTANT_SD, _PRIOR_SLOPE_SD = 0.2, 0.1
"""A model given from outside may be wrong by this factor, and by this one from one end of a knob to the other."""
_OFFSET_SD = 0.05
"""By which partitions of one model differ in that."""


@dataclass(frozen=True, slots=True, eq=False)
class OtherResiduals:
    """What other partitions of a model showed: logarithms of measured over expected, a row per choice."""

    coordinates: Floats
    """As `coordinates` of spaces with the same features gives them."""
    logs: Floats
    """(rows, 2)"""


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


def fit_surrogate(
    space: PartitionSpace[C], seen: MeasuredChoices, *, fit_from: int, others: OtherResiduals | None = None
) -> Surrogate:
    """Fit model and processes to what was seen; residuals of others count only where the space has a prior."""
    places = coordinates(space)
    shared = others if space.prior is not None else None
    prior = _prior(space)

    def process(form: FittedForm, column: int) -> tuple[GaussianProcess, Inputs]:
        inputs = Inputs(np.pad(places, ((0, 0), (0, 1))), form.basis)
        return _conditioned(inputs, form.logs, seen, column, prior, shared, fit_from), inputs

    first_form, active = _time_form(space, seen, places)
    first, first_inputs = process(first_form, 0)
    expected = first.predict(first_inputs)[0] + first_form.logs
    expected[seen.places] = seen.logs[:, 0]
    second_form = _energy_form(space, seen, places, expected, active)
    second, second_inputs = process(second_form, 1)
    model = np.stack([first_form.logs, second_form.logs], axis=1)
    return Surrogate.of((first, second), (first_inputs, second_inputs), model)


def _prior(space: PartitionSpace[C]) -> HyperPrior:
    """Return what is typical of residuals: those of a model given from outside are smoother than those of the form."""
    lengths, rough_sd = (_LENGTHS, _ROUGH_SD) if space.prior is None else (_PRIOR_LENGTHS, _PRIOR_ROUGH_SD)
    own = [lengths.get(name, _OTHER_LENGTH) for name in varying(space)] or [1.0]
    return HyperPrior(Hyper(np.array([*own, _PARTITION_LENGTH]), _SMOOTH_SD, rough_sd), *_SPREADS)


def _conditioned(
    inputs: Inputs,
    model: Floats,
    seen: MeasuredChoices,
    column: int,
    prior: HyperPrior,
    others: OtherResiduals | None,
    fit_from: int,
) -> GaussianProcess:
    rows, values = inputs.taken(seen.places), seen.logs[:, column] - model[seen.places]
    noise = seen.variance[:, column]
    if others is not None and len(others.logs):
        apart = np.pad(others.coordinates, ((0, 0), (0, 1)), constant_values=1.0)
        rows = rows.joined(Inputs(apart, _columns(others.coordinates, own=False)))
        values = np.concatenate([values, others.logs[:, column]])
        noise = np.concatenate([noise, np.zeros(len(others.logs))])
    if len(values) < fit_from:
        return condition(prior.typical, rows, values, noise)
    return fit_process(rows, values, prior=prior, noise=noise)


def _time_form(space: PartitionSpace[C], seen: MeasuredChoices, places: Floats) -> tuple[FittedForm, Floats]:
    """Return the form of time, and how long communication is active by it."""
    if space.prior is not None:
        return FittedForm(np.log(space.prior[:, 0]), _columns(places, own=True)), np.zeros(len(space))
    found = fit_time(Knobs.of(space.names, space.features), seen.places, seen.logs[:, 0])
    return _with_constant(found.form), found.active


def _energy_form(
    space: PartitionSpace[C], seen: MeasuredChoices, places: Floats, log_time: Floats, active: Floats
) -> FittedForm:
    if space.prior is not None:
        return FittedForm(np.log(space.prior[:, 1]), _columns(places, own=True))
    knobs = Knobs.of(space.names, space.features)
    return _with_constant(fit_energy(knobs, seen.places, seen.logs[:, 1], log_time, active))


def _with_constant(form: FittedForm) -> FittedForm:
    return FittedForm(form.logs, np.pad(form.basis, ((0, 0), (0, 1)), constant_values=_CONSTANT_SD))


def _columns(places: Floats, *, own: bool) -> Floats:
    """A constant and slopes, which partitions of a model share, and the offset of those that are not this one."""
    ones = np.ones((len(places), 1))
    return np.hstack([_PRIOR_CONSTANT_SD * ones, _PRIOR_SLOPE_SD * places, (0.0 if own else _OFFSET_SD) * ones])
