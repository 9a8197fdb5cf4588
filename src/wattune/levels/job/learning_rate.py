"""Learning rates that follow the batch size."""

from __future__ import annotations

from math import sqrt

from wattune.core.errors import InputError

RULES = ("linear", "sqrt")
"""In proportion (Goyal et al., 2017, for SGD), or with the square root (Krizhevsky, 2014; usual for Adam)."""


def scaled_rate(base: float, *, at: int, batch_size: int, rule: str) -> float:
    """The learning rate for a batch size, from one that is good `at` another."""
    if rule not in RULES:
        raise InputError(f"there is no rule {rule!r} for learning rates", hint=f"choose {' or '.join(RULES)}")
    if at < 1:
        raise InputError(f"a batch size is a whole number from 1, not {at}", hint="give the one that `base` is for")
    growth = batch_size / at
    return base * (growth if rule == "linear" else sqrt(growth))
