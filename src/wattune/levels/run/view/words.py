"""Sentences about a tuned run."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from wattune.control.progress_estimator import COUNTED, ONLY_OPTIMIZERS, OUTPUT, PATTERN
from wattune.control.state import Condition, Disabled, LostGpu, Waiting
from wattune.control.window_state import Settling
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.tariff import Footprint
from wattune.core.window import Order, Purpose, by_phase_words, phases_of, since_change
from wattune.levels.run.report import RunReport
from wattune.levels.run.summaries import EstimateWithError
from wattune.render.quantity import UNKNOWN, counted, duration, footprint_words, percent, quantity, with_error
from wattune.response.clock_doubt import window_doubt

if TYPE_CHECKING:
    from wattune.signals.period import PeriodAnswer


SURE, LIKELY = 0.99, 0.5
"""Probabilities from which a slowdown limit counts as surely met, and as met."""
ABOUT_TRIALS = 5
"""Trials that a search takes, roughly."""
_FINE = 0.0005
"""An error below this would read 0.0 %."""


def closing_lines(report: RunReport) -> tuple[str, ...]:
    """Return the closing report in a few lines, the most important first."""
    lines = [
        headline(report),
        compared_words(report),
        slowdown_words(report),
        search_words(report),
        even_words(report),
        last_period_words(report),
        *(lost_words(one) for one in report.lost),
    ]
    lines.append(cpu_words(report))
    lines.append(_hint(report))
    return tuple(line for line in lines if line)


def spent_words(spent: Measurement, footprint: Footprint | None) -> str:
    """Return what the run took and comes to."""
    if footprint is None:
        return "nothing was measured, since the program ended before the GPU was read twice"
    return f"{quantity(spent.energy_j, 'J')} ({footprint_words(footprint)}) in {duration(spent.time_s)}"


def _hint(report: RunReport) -> str:
    """Return what would make steps visible, or let them follow the GPU, where that is not so; empty otherwise."""
    progress, source = report.progress, report.seen.source
    if not report.windows or isinstance(progress.state, Disabled):
        return ""
    if ONLY_OPTIMIZERS in (event.text for event in progress.events):
        return ""  # it follows already
    seen = source in COUNTED or any(window.step_time_s for window in report.windows)
    if report.seen.follows_gpu and not seen:
        return "hint: only optimizer steps of PyTorch follow a simulated GPU, and none of them were counted"
    if report.simulated and not report.seen.follows_gpu and (not seen or source in (PATTERN, OUTPUT)):
        return (
            "hint: a program is as fast as a simulated GPU only with `wattune simulate --follow -- wattune run …`, "
            "which makes the steps of PyTorch follow it"
        )
    if seen:
        return ""
    return "hint: `wattune run` counts the steps of PyTorch programs, and with --step-pattern those that others print"


def cpu_words(report: RunReport) -> str:
    """Return what the tuning cost the processor; empty where that is unknown."""
    if report.cpu is None or report.cpu_share is None:
        return ""
    share = f"{100 * report.cpu_share:.2g} % of one core"
    if not report.cpu.of_process:
        return f"the thread that tunes took {share}"
    return f"wattune took {quantity(report.cpu.cpu_s, 's')} of processor time with its start, {share}"


def lost_words(gpu: LostGpu) -> str:
    """Return what is known of a GPU that was lost."""
    spent = f"{quantity(gpu.spent.energy_j, 'J')} in {duration(gpu.spent.time_s)}"
    return f"GPU {gpu.index} ({gpu.spec.label}) was lost: {spent} until its last reading, in the sum above"


def headline(report: RunReport) -> str:
    """Return in one sentence what was held and what that saved."""
    mark = "simulated: " if report.simulated else ""
    saved, slower = report.figures.saving, report.figures.slowdown
    if not report.was_set and report.ended:
        return f"{mark}nothing was set, so nothing was saved or lost: {_unset(report)}"
    if saved is None or slower is None:
        return f"{mark}{_UNKNOWN}: {_unmeasured(report)}"
    held = held_words(report)
    at = f" ({held})" if held else ""
    return f"{mark}{change_words(slower, saved)} against the {base_name(report)}, search included{at}"


def change_words(slower: EstimateWithError | None, saved: EstimateWithError | None) -> str:
    """Format the differences of time and energy, such as `time +4.5 ± 0.2 %, energy −13.1 ± 0.3 %`."""
    return f"time {estimate_words(slower)}, energy {estimate_words(saved and saved.negative)}"


MOST_HELD = 3
"""Settings that are named with the time for which each was held; of the others only the number is."""


def held_words(report: RunReport) -> str:
    """Return what was held and for how long, such as `1185 MHz held for 40 s, 1155 MHz for 38 s`; empty for nothing."""
    each = report.held_for
    if not each:
        return "" if report.held is None else f"{_named(report.held)} was held"
    times = [f"{_named(one.setting, one.label)} for {duration(one.time_s)}" for one in each[:MOST_HELD]]
    others = len(each) - MOST_HELD
    if others > 0:
        rest_s = sum(one.time_s for one in each[MOST_HELD:])
        times.append(f"{counted(others, 'other setting')} for {duration(rest_s)}")
    return f"held{' by turns' if report.alternates else ''}: {', '.join(times)}"


def measured_hold_words(report: RunReport) -> str:
    """Return the setting for which the figures of holding are: the last one that a window held, or two by turns."""
    last = next((window for window in reversed(report.windows) if window.purpose is Purpose.HOLD), None)
    if report.alternates:
        return " and ".join(map(_named, report.alternates))
    if last is None:
        return "" if report.held is None else _named(report.held)
    return by_phase_words(last.by_phase) or _named(last.setting)


def _named(setting: Setting, label: str | None = None) -> str:
    return f"{'the ' * (setting == DRIVER_DEFAULT)}{label or setting}"


def compared_words(report: RunReport) -> str:
    """Return the figures of the time that was compared, where the whole run has none; empty where none was."""
    figures = report.figures
    saved, slower = figures.compared_saving, figures.compared_slowdown
    if figures.saving is not None or saved is None or slower is None:
        return ""
    share = f"{100 * figures.compared_share:.0f} % of the run"
    return f"{change_words(slower, saved)} in the {duration(figures.compared_s)} that were compared ({share})"


def slowdown_words(report: RunReport) -> str:
    """Return whether the slowdown limit was met, and how sure that is; empty without a limit."""
    if report.slowdown_limit is None:
        return ""
    limit = f"the slowdown limit of {100 * report.slowdown_limit:g} %"
    slower, sure = report.figures.slowdown, report.figures.confidence
    if slower is None:
        why = (
            "step times could not be compared"
            if report.figures.compared_slowdown is None
            else "some time was not compared"
        )
        return f"whether {limit} was met is unknown, since {why}"
    if sure is None:
        met = "met" if slower.value <= report.slowdown_limit else "not met"
        return f"{limit} was {met} as far as was measured; how sure that is is unknown"
    surely = max(sure, 1 - sure)
    likely = "" if surely >= SURE else "probably "
    return f"{limit} was {likely}{'met' if sure >= LIKELY else 'not met'} ({sure_words(surely)} sure)"


def search_words(report: RunReport) -> str:
    """Return what the search took, against what the baseline would have taken for the same work."""
    figures = report.figures
    if not figures.evaluations:
        return ""
    words = f"the search took {counted(figures.evaluations, 'trial')} and {duration(figures.search_s)}"
    extra_j = figures.search_extra_j
    if not extra_j:  # unknown, or all windows before the first hold were at the baseline
        return words
    side = "more" if extra_j > 0 else "less"
    return f"{words}, and spent {quantity(abs(extra_j), 'J')} {side} than the {base_name(report)} would have"


def even_words(report: RunReport) -> str:
    """Return when the search had paid for itself."""
    even_s = report.figures.break_even_s
    if report.figures.saving is None or not report.figures.evaluations:
        return ""
    if even_s is None:
        return "break-even: not expected"
    if even_s <= 0:
        return "break-even: from the first trial on"
    if even_s <= report.spent.time_s:
        return f"break-even: after {duration(even_s)}"
    return f"break-even: expected after {duration(even_s)}, {duration(even_s - report.spent.time_s)} more than it ran"


def last_period_words(report: RunReport) -> str:
    """Return the last period of the power in words; empty where there was none, but step times were seen."""
    period = report.seen.period
    if period is not None and period.period_s is None and any(window.step_time_s for window in report.windows):
        return ""
    return period_words(period)


def period_words(period: PeriodAnswer | None) -> str:
    """Return the period of the power in words; empty where it was not searched for."""
    if period is None:
        return ""
    if period.period_s is None:
        known = {
            "aperiodic": "the power has no period",
            "not_observable": "the power sensor is too slow to show a period",
        }
        return known.get(period.verdict, period.verdict.replace("_", " "))
    others = [cycle for cycle in period.cycles if abs(cycle.period_s / period.period_s - 1) > 0.01]
    words = f"the power repeats every {with_error(period.period_s, period.error_s, 's')}"
    if not others:
        return words
    more = ", ".join(f"{with_error(cycle.period_s, cycle.error_s, 's')} ({cycle.kind})" for cycle in others)
    return f"{words}; also {more}"


def base_name(report: RunReport) -> str:
    """Return the setting that the run is compared with."""
    based = [window.setting for window in report.windows if window.purpose is Purpose.BASELINE]
    return str(based[-1]) if based else "baseline"


def state_words(report: RunReport) -> str:
    """Return what is going on, in one line: `searching: 3 of about 5`, `holding 1440 MHz`."""
    if report.ended:
        return "the program has ended"
    match report.progress.state:
        case Disabled(why=why):
            return f"not tuning any more: {why}"
        case Waiting(why=Condition.UNUSED):
            return "waiting for the program to use the GPU"
        case Waiting(why=why):
            return f"waiting: the program is {why}"
        case Settling(choice=order):
            return f"{_order_words(report, order)}, settling"
        case measuring:
            return _order_words(report, measuring.choice)


def _order_words(report: RunReport, order: Order) -> str:
    match order.purpose:
        case Purpose.BASELINE:
            return f"measuring the baseline ({order.setting})"
        case Purpose.REFERENCE:
            return f"reading counters ({order.setting})"
        case Purpose.HOLD if order.by_phase:
            return f"held per phase: {by_phase_words(order.by_phase)}"
        case Purpose.HOLD:
            return f"holding {'the ' * (order.setting == DRIVER_DEFAULT)}{order.setting}"
        case Purpose.TRIAL:
            tried = 1 + sum(window.purpose is Purpose.TRIAL for window in since_change(report.windows))
            about = "" if tried > ABOUT_TRIALS else f" of about {ABOUT_TRIALS}"
            return f"searching: {tried}{about} ({order.setting})"


def estimate_words(estimate: EstimateWithError | None) -> str:
    """Format a share as a signed percentage with its error, such as `+3.1 ± 0.6 %`."""
    return UNKNOWN if estimate is None else f"{percent_words(estimate)} %"


def percent_words(estimate: EstimateWithError | None) -> str:
    """Format the same without the unit, for columns whose head has it."""
    if estimate is None:
        return UNKNOWN
    if not estimate.error:
        return percent(100 * estimate.value).removesuffix(" %")
    places = _places(estimate)
    value = percent(100 * estimate.value, places=places).removesuffix(" %")
    return f"{value} ± {100 * estimate.error:.{places}f}"


def sure_words(sure: float) -> str:
    """Format a probability as a percentage that never claims certainty."""
    return "more than 99.9 %" if sure > 0.999 else f"{floor(1000 * sure) / 10:g} %"


def _places(estimate: EstimateWithError) -> int:
    """Return how many digits after the point are significant."""
    return 2 if estimate.error and estimate.error < _FINE else 1


def _unset(report: RunReport) -> str:
    """Return why no setting was applied."""
    progress = report.progress
    if isinstance(progress.state, Disabled):
        return progress.state.why
    based = [window for window in report.windows if window.purpose is Purpose.BASELINE and window.cost.time_s]
    if any(window.step_time_s for window in based):
        held = "the program ended before another setting was tried"
        return held if report.held is None else f"{_named(report.held)} was best as far as is known"
    if based:
        return "no step time of the program was found at the baseline"
    counted_steps = progress.stepped is not None or report.seen.source in COUNTED
    if isinstance(progress.state, Waiting) and not (progress.state.why is Condition.UNUSED and counted_steps):
        return f"the program was {progress.state.why}"
    ran = f"after {duration(report.spent.time_s)}" if report.is_measured else "at once"
    return f"the program ended {ran}, before the baseline was measured"


def _unmeasured(report: RunReport) -> str:
    """Return why savings are unknown although something was set."""
    if isinstance(report.progress.state, Disabled):
        return "the tuning ended before step times could be compared"
    if not any(window.step_time_s for window in report.windows if window.purpose is Purpose.BASELINE):
        return f"no step time of the program was found at the baseline{_predicted(report)}"
    doubts = (window_doubt(phase) for phase in phases_of(report.windows))
    doubt = next((words for words in doubts if words is not None), None)
    if doubt is not None:
        return f"the program does not follow the clock of this GPU: {doubt}"
    return f"step times were not seen for long enough to be compared with the baseline's{_predicted(report)}"


_UNKNOWN = "energy saved and time lost are unknown"


def _predicted(report: RunReport) -> str:
    """Return what was held without a comparison, and what the policy estimates of it, marked as that."""
    held, order = report.held or DRIVER_DEFAULT, report.order
    words = f" ({'the ' * (held == DRIVER_DEFAULT)}{held} was held)"
    if held == DRIVER_DEFAULT or order is None or order.purpose is not Purpose.HOLD or not order.why:
        return words
    return f"{words}; an estimate of the policy, not a measurement of the run: {order.why}"


def clipped(text: str, room: int) -> str:
    """Replace control characters by spaces and cut the text to the room there is."""
    fit = "".join(letter if letter.isprintable() else " " for letter in text)
    return fit if cell_len(fit) <= room else set_cell_size(fit, max(room - 1, 0)) + "…" * (room > 0)


def joined(lines: Sequence[Text]) -> Text:
    """Join lines to one picture that is never wrapped."""
    return Text("\n", no_wrap=True, overflow="crop").join(lines)
