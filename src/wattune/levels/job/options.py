"""Options of a recurring job that need no GPU: knobs, learning-rate rules and defaults."""

from __future__ import annotations

from enum import Enum
from math import sqrt

from wattune.core.errors import InputError

MAX_EPOCHS = 100
"""Zeus's own default (You et al., NSDI'23, `max_epochs`)."""

RULES = ("linear", "sqrt")
"""In proportion (Goyal et al., 2017, for SGD), or with the square root (Krizhevsky, 2014; usual for Adam)."""


class JobKnob(Enum):
    """The kind of setting that is applied to the GPUs of a job."""

    AUTO = "auto"
    """Core clocks where the GPU can lock them, else power limits."""
    SM_CLOCK = "sm-clock"
    POWER_LIMIT = "power-limit"
    NONE = "none"
    """Set nothing, only measure."""


def knob_named(name: str) -> JobKnob:
    """Return the knob of that name, or raise an error that lists all."""
    for knob in JobKnob:
        if knob.value == name:
            return knob
    raise InputError(f"there is no knob {name!r}", hint=f"choose one of {', '.join(knob.value for knob in JobKnob)}")


def scaled_rate(base: float, *, at: int, batch_size: int, rule: str) -> float:
    """Return the learning rate for a batch size, from one that was tuned `at` another."""
    if rule not in RULES:
        raise InputError(f"there is no rule {rule!r} for learning rates", hint=f"choose {' or '.join(RULES)}")
    if at < 1:
        raise InputError(f"a batch size is a whole number from 1, not {at}", hint="give the one that `base` is for")
    growth = batch_size / at
    return base * (growth if rule == "linear" else sqrt(growth))
