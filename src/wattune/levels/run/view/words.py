"""Sentences about a run that was tuned: what was held, what it saved, whether the promise was kept, what happened."""

from __future__ import annotations

from math import floor

from wattune.core.setting import DRIVER_DEFAULT
from wattune.core.window import Purpose
from wattune.levels.run.view.settings import EstimateWithError, HeldInterval, SettingSummary
from wattune.levels.run.view.view_model import ObservedPeriod, RunView
from wattune.render.quantity import UNKNOWN, counted, duration, number, percent, quantity, with_error

SURE, LIKELY = 0.99, 0.5
"""From where on a promise counts as surely kept, and as kept."""

_FINE = 0.0005
"""An error below this would read 0.0 %."""


def closing_lines(view: RunView) -> tuple[str, ...]:
    """The closing report in a few lines, the most important first."""
    lines = [headline(view), slowdown_words(view), search_words(view), even_words(view), period_words(view.period)]
    if view.cpu_share is not None:
        lines.append(f"tuning took {100 * view.cpu_share:.2g} % of one core")
    return tuple(line for line in lines if line)


def headline(view: RunView) -> str:
    """What was held and what that saved, in one sentence."""
    mark = "simulated: " if view.simulated else ""
    saved, slower = view.figures.saving, view.figures.slowdown
    if saved is None or slower is None:
        return f"{mark}{_untold(view)}"
    held = view.held
    at = "" if held is None else f" ({'the ' * (held == DRIVER_DEFAULT)}{held} was held)"
    energy = f"{_amount(saved)} {'less' if saved.value >= 0 else 'more'} energy"
    time = f"{_amount(slower)} {'more' if slower.value >= 0 else 'less'} time"
    return f"{mark}{energy} and {time} than at the {base_name(view)}, search included{at}"


def slowdown_words(view: RunView) -> str:
    """Whether the promise was kept, and how sure that is; empty where nothing was promised."""
    if view.slowdown_limit is None:
        return ""
    promised = f"at most {100 * view.slowdown_limit:g} % more time was promised"
    slower, sure = view.figures.slowdown, view.figures.confidence
    if slower is None:
        return f"{promised}; whether it was kept cannot be told, since the program's pace could not be compared"
    if sure is None:
        verdict = "kept" if slower.value <= view.slowdown_limit else "not kept"
        return f"the promise was {verdict} as far as was measured, but how sure that is cannot be told ({promised})"
    side = "kept" if sure >= LIKELY else "not kept"
    surely = max(sure, 1 - sure)
    likely = "" if surely >= SURE else "probably "
    return f"the promise was {likely}{side}, which is {sure_words(surely)} sure ({promised})"


def search_words(view: RunView) -> str:
    """What the search took, against what the baseline would have taken for the same work."""
    figures = view.figures
    if not figures.evaluations:
        return ""
    words = f"the search took {counted(figures.evaluations, 'trial')} and {duration(figures.search_s)}"
    extra_j = figures.search_extra_j
    if extra_j is None:
        return words
    side = "more" if extra_j > 0 else "less"
    return f"{words}, and spent {quantity(abs(extra_j), 'J')} {side} than the {base_name(view)} would have"


def even_words(view: RunView) -> str:
    """When the search had paid for itself."""
    even_s = view.figures.break_even_s
    if view.figures.saving is None or not view.figures.evaluations:
        return ""
    if even_s is None:
        return "break-even: not in sight"
    if even_s <= 0:
        return "break-even: from the first trial on"
    if even_s <= view.spent.time_s:
        return f"break-even: after {duration(even_s)}"
    return f"break-even: expected after {duration(even_s)}, {duration(even_s - view.spent.time_s)} more than it ran"


def period_words(period: ObservedPeriod | None) -> str:
    """What repeats in the power, in words; empty where nobody looked."""
    if period is None:
        return ""
    if period.period_s is None:
        told = {"aperiodic": "nothing repeats in the power", "not_observable": "its sensor cannot show what repeats"}
        return told.get(period.verdict, period.verdict.replace("_", " "))
    others = [cycle for cycle in period.cycles if abs(cycle.period_s / period.period_s - 1) > 0.01]
    words = f"the power repeats every {with_error(period.period_s, period.error_s, 's')}"
    if not others:
        return words
    more = ", ".join(f"{with_error(cycle.period_s, cycle.error_s, 's')} ({cycle.kind})" for cycle in others)
    return f"{words}; also {more}"


def base_name(view: RunView) -> str:
    """What the run is compared with."""
    based = [window.setting for window in view.windows if window.purpose is Purpose.BASELINE]
    return str(based[-1]) if based else "baseline"


def verdict(held_interval: HeldInterval, point: SettingSummary, *, slowdown_limit: float | None) -> str:
    """What a gear turned out to be; empty where nothing was promised that it could break."""
    if point is held_interval.baseline:
        return "baseline"
    if not any(window.held for window in point.windows):
        return "not applied"
    slower = held_interval.slowdown(point)
    if slower is None:
        return "no pace" if point.step_time is None else "no baseline"
    return "" if slowdown_limit is None else _against(slower, slowdown_limit)


def estimate_words(estimate: EstimateWithError | None) -> str:
    """A share as a signed percentage with its error, such as `+3.1 ± 0.6 %`."""
    return UNKNOWN if estimate is None else f"{percent_words(estimate)} %"


def percent_words(estimate: EstimateWithError | None) -> str:
    """The same without the unit, for columns whose head has it."""
    if estimate is None:
        return UNKNOWN
    if not estimate.error:
        return percent(100 * estimate.value).removesuffix(" %")
    return f"{_signed(100 * estimate.value, _places(estimate))} ± {100 * estimate.error:.{_places(estimate)}f}"


def step_time_words(point: SettingSummary) -> str:
    """The pace of a gear with its error."""
    return UNKNOWN if point.step_time is None else with_error(point.step_time.value, point.step_time.error, "s")


def sure_words(sure: float) -> str:
    """How sure something is, as a percentage that never claims certainty."""
    return "more than 99.9 %" if sure > 0.999 else f"{floor(1000 * sure) / 10:g} %"


def _against(slower: EstimateWithError, slowdown_limit: float) -> str:
    error = slower.error or 0.0
    if slower.value - error > slowdown_limit:
        return "too slow"
    return "fast enough" if slower.value + error <= slowdown_limit else "unsure"


def _amount(estimate: EstimateWithError) -> str:
    """The size of a share, without its sign."""
    if not estimate.error:
        return f"{number(100 * abs(estimate.value))} %"
    places = _places(estimate)
    return f"{100 * abs(estimate.value):.{places}f} ± {100 * estimate.error:.{places}f} %"


def _places(estimate: EstimateWithError) -> int:
    """Digits after the point that the error leaves a meaning."""
    return 2 if estimate.error and estimate.error < _FINE else 1


def _signed(value: float, places: int) -> str:
    text = f"{value:+.{places}f}"
    return (text[1:] if float(text) == 0 else text).replace("-", "−")


def _untold(view: RunView) -> str:
    if not view.windows:
        if view.why:
            return f"nothing was tuned ({view.why})"
        return "nothing was tuned: the program did not use the GPU for long enough"
    if not any(window.step_time_s for window in view.windows if window.purpose is Purpose.BASELINE):
        return f"what tuning did was not measured: no progress of the program was seen at the baseline{_reckoned(view)}"
    return "nothing but the baseline was looked at for long enough"


def _reckoned(view: RunView) -> str:
    """What the policy thinks of the setting that it holds, where it holds one; that is no measurement."""
    order = view.order
    if order is None or order.purpose is not Purpose.HOLD or order.setting == DRIVER_DEFAULT or not order.why:
        return ""
    return f"; by power and utilisation alone it is reckoned: {order.why}"
