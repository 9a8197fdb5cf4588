"""The closing report of a tuned run as a page: what it saved, whether the slowdown limit was met, and why."""

from __future__ import annotations

from collections.abc import Iterator

from wattune.core.window import Purpose
from wattune.levels.run.figures import EstimateWithError, PhaseSummary, SettingSummary, phase_summaries
from wattune.levels.run.report import RunReport
from wattune.levels.run.view.charts import close_chart, plane_chart, power_chart
from wattune.levels.run.view.words import (
    LIKELY,
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
    unit_energy_words,
    verdict,
)
from wattune.render.page import Figure, Figures, LargeChart, Page, Prose, Section, Table, render_page
from wattune.render.quantity import UNKNOWN, counted, duration, quantity
from wattune.render.svg import standalone

SETTING_HEAD = (
    "setting",
    "set for",
    "verdict",
    "time set",
    "step time",
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


def run_file(report: RunReport, *, made: str, suffix: str) -> str:
    """Render the whole page for `.html`, its first picture for `.svg`."""
    return standalone(power_chart(report)) if suffix == ".svg" else render_page(run_page(report, made=made))


def run_page(report: RunReport, *, made: str) -> Page:
    """Lay out the page of a run; `made` is when and by which version."""
    sections: list[Section] = [Figures(_figures(report)), *_pictures(report), *_setting_tables(report)]
    sections += [
        Prose("The slowdown limit", _slowdown_limit(report)),
        _events(report),
        Prose("How to read it", _how(report)),
    ]
    return Page(
        title=f"{report.program} on {report.progress.spec.name}",
        lead=_sentence(headline(report)),
        simulated=report.simulated,
        sections=tuple(sections),
        foot=made,
    )


def _figures(report: RunReport) -> tuple[Figure, ...]:
    figures, spent = report.figures, report.spent
    held = "nothing was held" if report.held is None else f"at {report.held}: {estimate_words(figures.held_saving)}"
    even = figures.break_even_s
    return (
        Figure(estimate_words(figures.saving), "energy saved, search included", held),
        Figure(estimate_words(figures.slowdown), f"time against the {base_name(report)}", _met(report)),
        Figure(
            UNKNOWN if even is None else duration(even) if even > 0 else "at once",
            "break-even",
            search_words(report) or None,
        ),
        Figure(quantity(spent.energy_j, "J"), "spent in all", f"in {duration(spent.time_s)}"),
    )


def _met(report: RunReport) -> str | None:
    if report.slowdown_limit is None:
        return None
    limit, sure = f"{100 * report.slowdown_limit:g} % allowed", report.figures.confidence
    if sure is None:
        return limit
    return f"{limit}; {'met' if sure >= LIKELY else 'not met'}, {sure_words(max(sure, 1 - sure))} sure"


def _pictures(report: RunReport) -> Iterator[Section]:
    if report.trace.steps:
        yield LargeChart(power_chart(report))
    close, plane = close_chart(report), plane_chart(report)
    if close is not None:
        yield LargeChart(close)
    if plane is not None:
        yield LargeChart(plane)


def _setting_tables(report: RunReport) -> Iterator[Table]:
    """Make a table of settings for each phase of the program."""
    found = phase_summaries(report.windows)
    for place, phase in enumerate(found):
        title = "Settings that were measured"
        if len(found) > 1:
            title = f"{title}, phase {place + 1} of {len(found)}"
        head = tuple(cell.format(unit=report.unit) for cell in SETTING_HEAD)
        rows = tuple(_cells(report, phase, point) for point in phase.points)
        strong = frozenset(row for row, point in enumerate(phase.points) if Purpose.HOLD in point.purposes)
        yield Table(title, head, rows, words=3, strong=strong)


def _cells(report: RunReport, phase: PhaseSummary, point: SettingSummary) -> tuple[str, ...]:
    is_base = point is phase.baseline
    return (
        str(point.setting),
        ", ".join(words for purpose, words in _PURPOSES.items() if purpose in point.purposes),
        verdict(phase, point, slowdown_limit=report.slowdown_limit),
        duration(point.seconds),
        step_time_words(point),
        quantity(point.power.value, "W"),
        unit_energy_words(point),
        "" if is_base else percent_words(phase.slowdown(point)),
        "" if is_base else percent_words(phase.saving(point)),
    )


def _slowdown_limit(report: RunReport) -> tuple[str, ...]:
    lines = [slowdown_words(report) or f"the slowdown was not limited; the objective was {report.objective}"]
    slower = report.figures.slowdown
    if slower is not None:
        lines.append(f"on the whole the run took {_time(slower)} than its work takes at the {base_name(report)}")
    lines += [search_words(report), even_words(report)]
    return tuple(_sentence(words) for words in lines if words)


def _time(slower: EstimateWithError) -> str:
    size = EstimateWithError(abs(slower.value), slower.error)
    return f"{estimate_words(size).lstrip('+')} {'longer' if slower.value >= 0 else 'shorter'}"


def _events(report: RunReport) -> Prose:
    """List the events; of very many the latest."""
    shown = tuple(f"After {duration(event.time_s)}: {event.text}" for event in report.progress.events[-MOST_EVENTS:])
    left_out = len(report.progress.events) - len(shown)
    before = (f"{counted(left_out, 'earlier event')} are left out.",) if left_out else ()
    return Prose("What happened", (*before, *shown) or ("Nothing out of the ordinary.",))


def _how(report: RunReport) -> tuple[str, ...]:
    lines = [
        f"The program was not changed; {report.policy} chose the settings, by the objective {report.objective}. The "
        f"{base_name(report)} was measured first, and everything is compared with it; then other settings were tried, "
        "and the best was held.",
        "All that the search took is counted, and so is the time in which clocks settled. Errors (±) are half the "
        "width of a 95 % interval.",
    ]
    if report.gpus > 1:
        lines.append(
            f"{counted(report.gpus, 'GPU')} were tuned as one: power and energy of a setting are the mean of them."
        )
    if report.period is not None:
        lines.append(_sentence(period_words(report.period)))
    if report.cpu_share is not None:
        lines.append(f"Tuning took {100 * report.cpu_share:.2g} % of one core.")
    if report.simulated:
        lines.append(
            "The GPU is simulated: time and energy come from wattune's model of the GPU and not from hardware. They "
            "show how settings compare; a real GPU may differ."
        )
    return tuple(lines)


def _sentence(words: str) -> str:
    """Add a capital and a full stop."""
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"
