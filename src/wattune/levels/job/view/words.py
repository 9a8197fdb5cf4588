"""Words for recurring jobs: how runs end, what objectives measure, which GPU it is."""

from __future__ import annotations

from wattune.core.job import JobGpu, Outcome
from wattune.render.quantity import number, quantity

_UNITS = {
    "cost": ("cost", "J"),
    "energy": ("energy", "J"),
    "deadline": ("energy", "J"),
    "money": ("cost", ""),
    "carbon": ("carbon", "g"),
    "edp": ("energy × time", "J·s"),
    "ed2p": ("energy × time²", "J·s²"),
    "power": ("time", "s"),
}
ENDS = {
    Outcome.RUNNING: "still running",
    Outcome.REACHED: "reached the target",
    Outcome.MISSED: "missed the target",
    Outcome.STOPPED: "stopped by us",
    Outcome.OUT_OF_MEMORY: "out of memory",
    Outcome.CRASHED: "crashed",
    Outcome.LOST: "never heard of again",
}
"""How a run ended."""


def counted_in(objective: str) -> tuple[str, str]:
    """Return what the value of an objective such as `cost:0.5` is, and its unit; money has none."""
    return _UNITS[objective.strip().lower().partition(":")[0]]


def amount(value: float | None, unit: str) -> str:
    """Format a value of an objective; money has no unit."""
    return quantity(value, unit) if unit else number(value)


def gpu_label(gpu: JobGpu) -> str:
    """Return the count and model of the GPUs, and whether they are simulated."""
    several = f"{gpu.count} × " if gpu.count > 1 else ""
    return f"{several}{gpu.name}" + (" (simulated)" if gpu.simulated else "")
