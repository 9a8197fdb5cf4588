"""How far the figures of a simulated GPU can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class TrustLevel(Enum):
    """What the numbers of a simulated GPU were compared with, the most first."""

    JUDGED = "judged"
    """Measurements that they were not fitted to."""
    FITTED = "fitted"
    """Only the measurements that they were fitted to."""
    NOT_JUDGED = "not judged"
    """No measurement."""
    UNKNOWN = "unknown"
    """The GPU is not in the catalogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """How well the figures of one simulated GPU agree with measurements, as its catalogue file states it."""

    gpu: str | None
    """Its name; None where that is not known."""
    level: TrustLevel
    time_error_percent: float | None = None
    energy_error_percent: float | None = None
    power_error_percent: float | None = None
    basis: str | None = None
    """The measurements that the errors, or the judgement, are about."""
    text: str | None = None
    """All that the catalogue says: what was fitted, what was judged, and what is an estimate."""

    @property
    def words(self) -> str:
        """One short phrase for the first figure."""
        errors = ", ".join(
            f"{name} {percent:g} %"
            for name, percent in (
                ("time", self.time_error_percent),
                ("energy", self.energy_error_percent),
                ("power", self.power_error_percent),
            )
            if percent is not None
        )
        match self.level:
            case TrustLevel.JUDGED if errors:
                return f"simulated; catalogue error: {errors} ({self.basis})"
            case TrustLevel.JUDGED:
                return f"simulated; judged on {self.basis}"
            case TrustLevel.FITTED:
                return f"simulated; catalogue error: {errors} ({self.basis}); not judged on other measurements"
            case TrustLevel.NOT_JUDGED:
                return "simulated; this GPU's numbers were not judged on any measurement"
            case TrustLevel.UNKNOWN if self.gpu is None:
                return "simulated; the GPU is not named, so the error is unknown"
            case TrustLevel.UNKNOWN:
                return "simulated; the catalogue does not have this GPU, so the error is unknown"
