"""What a change of clocks costs in `wattune pipeline plan`: as given, or by the catalogue."""

from __future__ import annotations

from dataclasses import replace

from wattune.core.errors import InputError
from wattune.core.objective import parse_seconds
from wattune.levels.pipeline.solver.switching import ClockSwitching
from wattune.physics.catalog import load_model


def switching_of(*, latency: str | None, gpu: str | None) -> ClockSwitching | None:
    """Return the latency as given, or that of a GPU, with the stall of the GPU where it is known; None without both."""
    given = None if latency is None else ClockSwitching.given(_seconds(latency))
    if gpu is None:
        return given
    model = load_model(gpu)
    if given is not None:
        stall_s = min(model.change.sm.stall_s or given.stall_s, given.latency_s)
        return replace(given, stall_s=stall_s, source=f"latency as given, stall of {model.name} by the catalogue")
    if model.switching.sm_s is None:
        raise InputError(
            f"the catalogue has no switching time of {model.name}",
            hint="give --switch-latency; `wattune layers switch-latency` measures it",
        )
    known = ClockSwitching.given(model.switching.sm_s)
    return replace(known, stall_s=model.change.sm.stall_s or known.stall_s, source=f"{model.name} by the catalogue")


def _seconds(text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError:
        raise InputError(
            f"--switch-latency {text}: not a time of 0 or more", hint="write for example --switch-latency 10ms"
        ) from None
