"""What is said of a tuned run without a screen: one line before it begins, and short lines while it goes on."""

from __future__ import annotations

from collections.abc import Sequence

from wattune.control.state import Condition, Waiting
from wattune.control.window_state import Measuring, Settling
from wattune.core.window import Purpose
from wattune.levels.run.report import RunReport
from wattune.levels.run.view.words import clipped, state_words

LONGEST = 240
"""Characters of a line; the closing report has all of a text."""

NO_PERMISSION = (
    "clocks may not be set for lack of permission (`wattune doctor` shows how to get it), so it only measures"
)


def opening_line(report: RunReport, *, tunes: bool, may_set: bool, can_set: bool, steps: str) -> str:
    """Return the GPU, whether it may be set, the objective, and how steps will be seen."""
    if not tunes:
        setting = f"the policy {report.policy} sets nothing"
    elif not can_set:
        setting = "this GPU has nothing to set, so it only measures"
    else:
        setting = "clocks may be set" if may_set else NO_PERMISSION
    limit = report.slowdown_limit
    aim = f"objective {report.objective}; " if limit is None else f"at most {100 * limit:g} % slower; "
    if not (tunes and can_set and may_set):
        aim = ""  # nothing will be slower
    return f"{report.label}: {setting}; {aim}step times come from {steps}"


Key = tuple[object, ...]


def event_lines_of(report: RunReport, *, events: int, said: set[Key]) -> tuple[str, ...]:
    """Return lines about the events after so many, and about what begins, each once until the program changes.

    A setting that is held again has a line again, unless it is held by turns. What was said is added to `said`.
    """
    lines = [f"{event.time_s:.1f} s: {clipped(event.text, LONGEST)}" for event in report.progress.events[events:]]
    key = _beginning(report)
    if key is not None and key not in said:
        if key[0] is Purpose.HOLD and not report.alternates:
            said.difference_update([one for one in said if one[0] is Purpose.HOLD])
        said.add(key)
        lines.append(
            f"{report.progress.time_s:.1f} s: {clipped(state_words(report).removesuffix(', settling'), LONGEST)}"
        )
    return tuple(lines)


def numbered(lines_of_each: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Join the lines of all GPUs, with the index of the GPU where there are several."""
    several = len(lines_of_each) > 1
    return tuple(f"GPU {n}: {line}" if several else line for n, lines in enumerate(lines_of_each) for line in lines)


def _beginning(report: RunReport) -> Key | None:
    """Return what distinguishes the present state from others that deserve a line; None where it deserves none."""
    changes = len(report.progress.changes)
    match report.progress.state:
        case Waiting(why=Condition.UNUSED):
            return (Condition.UNUSED,)
        case Settling(choice=order) | Measuring(choice=order) if order.purpose is Purpose.BASELINE:
            return (changes, order.purpose)
        case Measuring(choice=order) if order.purpose is Purpose.TRIAL:  # before, the driver may still refuse it
            return (changes, order.purpose)
        case Measuring(choice=order) if order.purpose is Purpose.HOLD:
            return (Purpose.HOLD, changes, order.setting, bool(order.by_phase))
        case _:
            return None
