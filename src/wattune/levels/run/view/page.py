"""The closing report of a run that was tuned, as a page: what it saved, whether the promise was kept, and why."""

from __future__ import annotations

from collections.abc import Iterator

from wattune.core.window import Purpose
from wattune.levels.run.view.charts import close_chart, plane_chart, power_chart
from wattune.levels.run.view.settings import EstimateWithError, HeldInterval, SettingSummary, held_intervals_of
from wattune.levels.run.view.view_model import RunView
from wattune.levels.run.view.words import (
    base_name,
    estimate_words,
    even_words,
    headline,
    percent_words,
    period_words,
    search_words,
    slowdown_words,
    step_time_words,
    sure_words,
    verdict,
)
from wattune.render.page import Figure, Figures, LargeChart, Page, Prose, Section, Table, render_page
from wattune.render.quantity import UNKNOWN, counted, duration, quantity, with_error
from wattune.render.svg import standalone

SETTING_HEAD = (
    "setting",
    "set for",
    "verdict",
    "time set",
    "pace",
    "power",
    "energy per {unit}",
    "Δ time %",
    "saving %",
)
MOST_EVENTS = 100
_PURPOSES = {
    Purpose.BASELINE: "baseline",
    Purpose.REFERENCE: "counters",
    Purpose.TRIAL: "trial",
    Purpose.HOLD: "hold",
}


def run_file(view: RunView, *, made: str, suffix: str) -> str:
    """The whole page for `.html`, its first picture for `.svg`."""
    return standalone(power_chart(view)) if suffix == ".svg" else render_page(run_page(view, made=made))


def run_page(view: RunView, *, made: str) -> Page:
    """The page of a run; `made` says when and by which version."""
    sections: list[Section] = [Figures(_figures(view)), *_pictures(view), *_setting_tables(view)]
    sections += [Prose("The promise", _slowdown_limit(view)), _events(view), Prose("How to read it", _how(view))]
    return Page(
        title=f"{view.program} on {view.gpu}",
        lead=_sentence(headline(view)),
        simulated=view.simulated,
        sections=tuple(sections),
        foot=made,
    )


def _figures(view: RunView) -> tuple[Figure, ...]:
    figures, spent = view.figures, view.spent
    held = "nothing was held" if view.held is None else f"at {view.held}: {estimate_words(figures.held_saving)}"
    even = figures.break_even_s
    return (
        Figure(estimate_words(figures.saving), "energy saved, search included", held),
        Figure(estimate_words(figures.slowdown), f"time against the {base_name(view)}", _kept(view)),
        Figure(
            UNKNOWN if even is None else duration(even) if even > 0 else "at once",
            "break-even",
            search_words(view) or None,
        ),
        Figure(quantity(spent.energy_j, "J"), "spent in all", f"in {duration(spent.time_s)}"),
    )


def _kept(view: RunView) -> str | None:
    if view.slowdown_limit is None:
        return None
    slowdown_limit_given, sure = f"{100 * view.slowdown_limit:g} % promised", view.figures.confidence
    if sure is None:
        return slowdown_limit_given
    return f"{slowdown_limit_given}; {'kept' if sure >= 0.5 else 'missed'}, {sure_words(max(sure, 1 - sure))} sure"


def _pictures(view: RunView) -> Iterator[Section]:
    if view.trace.steps:
        yield LargeChart(power_chart(view))
    close, plane = close_chart(view), plane_chart(view)
    if close is not None:
        yield LargeChart(close)
    if plane is not None:
        yield LargeChart(plane)


def _setting_tables(view: RunView) -> Iterator[Table]:
    """A table of gears for each thing that the program did."""
    found = held_intervals_of(view.windows)
    for place, held_interval in enumerate(found):
        title = (
            "Settings that it was at"
            if len(found) == 1
            else f"Settings that it was at, part {place + 1} of {len(found)}"
        )
        head = tuple(cell.format(unit=view.unit) for cell in SETTING_HEAD)
        rows = tuple(_cells(view, held_interval, point) for point in held_interval.points)
        strong = frozenset(row for row, point in enumerate(held_interval.points) if Purpose.HOLD in point.purposes)
        yield Table(title, head, rows, words=3, strong=strong)


def _cells(view: RunView, held_interval: HeldInterval, point: SettingSummary) -> tuple[str, ...]:
    unit = point.unit
    energy = UNKNOWN if unit is None else with_error(unit.energy_j, unit.energy_error_j, "J")
    is_base = point is held_interval.baseline
    return (
        str(point.setting),
        ", ".join(words for purpose, words in _PURPOSES.items() if purpose in point.purposes),
        verdict(held_interval, point, slowdown_limit=view.slowdown_limit),
        duration(point.seconds),
        step_time_words(point),
        quantity(point.power.value, "W"),
        energy,
        "" if is_base else percent_words(held_interval.slowdown(point)),
        "" if is_base else percent_words(held_interval.saving(point)),
    )


def _slowdown_limit(view: RunView) -> tuple[str, ...]:
    said = [slowdown_words(view) or f"No slowdown was promised; the objective was {view.objective}"]
    slower = view.figures.slowdown
    if slower is not None:
        said.append(f"on the whole the run took {_time(slower)} than its work takes at the {base_name(view)}")
    said += [search_words(view), even_words(view)]
    return tuple(_sentence(words) for words in said if words)


def _time(slower: EstimateWithError) -> str:
    size = EstimateWithError(abs(slower.value), slower.error)
    return f"{estimate_words(size).lstrip('+')} {'longer' if slower.value >= 0 else 'shorter'}"


def _events(view: RunView) -> Prose:
    """What happened, in words; of very many the latest."""
    shown = tuple(f"After {duration(event.time_s)}: {event.text}" for event in view.events[-MOST_EVENTS:])
    left_out = len(view.events) - len(shown)
    before = (f"{counted(left_out, 'earlier event')} are left out.",) if left_out else ()
    return Prose("What happened", (*before, *shown) or ("Nothing out of the ordinary.",))


def _how(view: RunView) -> tuple[str, ...]:
    said = [
        f"The program was left alone; {view.policy} chose what was set, by the objective {view.objective}. It was "
        f"first watched at the {base_name(view)}, with which all is compared; then other settings were tried, and the "
        "best was held.",
        "Everything that the search took is counted, and so is what passed while clocks settled. Errors (±) are half "
        "the width of a 95 % interval.",
    ]
    if view.gpus > 1:
        said.append(
            f"{counted(view.gpus, 'GPU')} were tuned as one: power and energy of a setting are the mean of them."
        )
    if view.period is not None:
        said.append(_sentence(period_words(view.period)))
    if view.cpu_share is not None:
        said.append(f"Tuning took {100 * view.cpu_share:.2g} % of one core.")
    if view.simulated:
        said.append(
            "The GPU is simulated: time and energy come from wattune's model of the part and not from hardware. They "
            "show how settings compare; they are no promise for a GPU that one can touch."
        )
    return tuple(said)


def _sentence(words: str) -> str:
    """The words with a capital and a full stop."""
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"
