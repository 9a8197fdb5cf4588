"""The learning rate that goes with a batch size, from one that was tuned for another size."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from wattune.core.errors import InputError
from wattune.levels.job.learning_rate import scaled_rate


@dataclass(frozen=True, slots=True)
class ScaledRate:
    """A learning rate that was tuned at one batch size, and how it grows: in proportion, or with the square root."""

    base: float
    at: int
    rule: str

    @classmethod
    def parse(cls, text: str, rule: str) -> ScaledRate:
        """The rate that a text such as `0.1@256` names."""
        rate, _, size = text.partition("@")
        try:
            base, at = float(rate), int(size)
        except ValueError:
            base, at = inf, 0
        if not (0 < base < inf and at >= 1):
            raise InputError(
                f"{text!r} is no learning rate at a batch size", hint="write the two that go together, as 0.1@256"
            )
        return cls(base, at, rule)

    def at_size(self, batch_size: int) -> float:
        """The learning rate for a batch size."""
        return scaled_rate(self.base, at=self.at, batch_size=batch_size, rule=self.rule)
