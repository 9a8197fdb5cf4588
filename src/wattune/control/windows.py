"""Windows of a run from their first reading to their end: opened, estimated, ended or left unfinished."""

from __future__ import annotations

from dataclasses import replace

from wattune.control.state import (
    NOTHING,
    OpenWindow,
    Progress,
    StepsDone,
    StepTime,
    between,
)
from wattune.control.window_state import Measuring, Settling
from wattune.control.window_totals import Tally
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading
from wattune.core.window import Order, Window

GROWTH = (1.25, 2.0)
"""By how much a window grows between two estimates of its step time, at least and at most: an estimate is costly."""
_SAME_S = 1e-6
"""Times that differ by less are equal."""


def opened(first: Reading, since: Reading, progress: Progress, steps: StepsDone | None = None) -> OpenWindow:
    """Begin a window at a reading; steps take as long as at present, or as in the last window."""
    step_s = None if steps is None else steps.step_s
    if step_s is None and progress.windows:
        step_s = progress.windows[-1].step_time_s
    return OpenWindow(Tally.begun(first, step_s=step_s), since)


def _steps_of(progress: Progress, measured: OpenWindow) -> float | None:
    """Return the steps in a window and while its setting settled; None where they are unknown or something paused."""
    tally, since = measured.tally, measured.since
    last = tally.last or tally.first
    if since is None or since.steps is None or last.steps is None or tally.paused_s:
        return None
    is_whole = abs(progress.unmeasured.time_s - (tally.first.exact_s - since.exact_s)) < _SAME_S
    return last.steps - since.steps if is_whole else None


def estimate_again_s(order: Order, step_time: StepTime | None, age_s: float) -> float:
    """Return the age at which the step time will be precise enough: its error falls with the age to the 1.5."""
    least, most = GROWTH
    error = None if step_time is None else step_time.relative_error
    if error is None or order.precision is None:
        return most * age_s
    return age_s * min(max(float((error / order.precision) ** (2 / 3)), least), most)


def with_window(progress: Progress, order: Order, measured: OpenWindow, *, changed: bool = False) -> Progress:
    """Add a window that has ended, as a policy sees it."""
    tally, evidence = measured.tally, measured.evidence
    step_time = evidence.step_time
    assert progress.first is not None
    settling, early_steps = progress.unmeasured, progress.early_steps
    if early_steps and step_time is not None:
        early_s, early_steps = early_steps * step_time.step_time_s, 0
        settling += Measurement(early_s, early_s * tally.cost.power_w)
    window = Window(
        setting=order.setting,
        purpose=order.purpose,
        start_s=tally.first.exact_s - progress.first.exact_s,
        cost=tally.cost,
        settling=settling,
        step_time_s=None if step_time is None else step_time.step_time_s,
        step_time_error_s=None if step_time is None else step_time.error_s,
        source=None if step_time is None else step_time.source,
        held=tally.held,
        sm_mhz=tally.sm_mhz.mean,
        sm_util=tally.sm_utils.mean,
        mem_util=tally.mem_utils.mean,
        sm_util_error=tally.sm_utils.error,
        mem_util_error=tally.mem_utils.error,
        features=evidence.features,
        changed=changed,
        phases=evidence.phases,
        by_phase=order.by_phase,
        steps=_steps_of(progress, measured),
        delayed=0.0 if step_time is None else step_time.delayed,
    )
    return replace(progress, windows=(*progress.windows, window), unmeasured=NOTHING, early_steps=early_steps)


def unfinished(progress: Progress, order: Order, tally: Tally, since: Reading | None) -> Progress:
    """Add what passed since the last window as one in which nothing was measured."""
    passed = progress.unmeasured + Measurement(tally.time_s, tally.cost.energy_j)
    if not passed.time_s:
        return progress
    empty = OpenWindow(Tally(tally.last or tally.first), since)
    return with_window(replace(progress, unmeasured=passed), order, empty)


def unmeasured(progress: Progress) -> Measurement:
    """Return what has passed since the last window."""
    match progress.state:
        case Settling(since=first) if progress.last is not None:
            return progress.unmeasured + between(first, progress.last)
        case Measuring(window=window):
            cost = window.tally.cost
            return progress.unmeasured + Measurement(cost.time_s, cost.energy_j)
        case _:
            return progress.unmeasured
