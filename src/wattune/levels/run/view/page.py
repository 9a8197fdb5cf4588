"""The closing report of a tuned run as a page: what it saved, whether the slowdown limit was met, and its charts."""

from __future__ import annotations

from collections.abc import Iterator

from wattune.core.setting import DRIVER_DEFAULT
from wattune.core.window import Purpose
from wattune.levels.run.report import RunReport
from wattune.levels.run.summaries import EstimateWithError, PhaseSummary, SettingSummary, phase_summaries
from wattune.levels.run.view.charts import close_chart, plane_chart, power_chart
from wattune.levels.run.view.result import RunResult
from wattune.levels.run.view.settings import judged_words, measured_cells
from wattune.levels.run.view.words import (
    LIKELY,
    base_name,
    compared_words,
    cpu_words,
    estimate_words,
    even_words,
    headline,
    last_period_words,
    measured_hold_words,
    search_words,
    slowdown_words,
    sure_words,
)
from wattune.physics.catalog import trust_of
from wattune.process.python_command import command_title
from wattune.render.page import Figure, Figures, LargeChart, Page, Prose, Section, Table, render_page
from wattune.render.quantity import (
    counted,
    duration,
    footprint_words,
    percent,
    quantity,
)
from wattune.render.svg import standalone

SETTING_HEAD = "setting,set for,verdict,time set,step time,power,energy per {unit},Δ time %,Δ energy %"
MOST_EVENTS = 100


def run_file(result: RunResult, *, made: str, suffix: str) -> str:
    """Render the whole page for `.html`, its first picture for `.svg`."""
    if suffix == ".svg":
        return standalone(power_chart(result.report))
    return render_page(run_page(result, made=made))


def run_page(result: RunResult, *, made: str) -> Page:
    """Lay out the page of a run; `made` is when, where and by which version."""
    report = result.report
    sections: tuple[Section, ...] = (
        Figures((*_figures(result), *_in_the_long_run(result))),
        *_pictures(report),
        *_setting_tables(report),
        Prose("The slowdown limit", _slowdown_limit(report)),
        _events(report),
        Prose("How to read it", _how(report)),
    )
    return Page(
        title=f"{command_title(report.program)} on {report.progress.spec.name}",
        lead=_sentence(headline(report)),
        simulated=report.simulated,
        trust=trust_of(report.simulated, report.progress.spec.name),
        sections=sections,
        foot=made,
    )


def _figures(result: RunResult) -> tuple[Figure, ...]:
    report = result.report
    figures, spent = report.figures, report.spent
    held = slower = "nothing was held"
    if report.held is not None:
        while_held = f"while {measured_hold_words(report)} {'took turns' if report.alternates else 'was held'}"
        held = f"{while_held}: {_known(_change(figures.held_saving))}"
        slower = f"{while_held}: {_known(figures.held_slowdown)}"
    even = figures.break_even_s
    met = _met(report)
    return (
        Figure(_known(_change(figures.saving)), "energy of the whole run, search included", held),
        Figure(
            _known(figures.slowdown),
            f"time of the whole run, against the {base_name(report)}",
            slower if met is None else f"{slower}; {met}",
        ),
        Figure(
            "unknown" if even is None else duration(even) if even > 0 else "at once",
            "break-even",
            search_words(report) or None,
        ),
        Figure(
            "unknown" if result.footprint is None else quantity(spent.energy_j, "J"),
            "spent in all",
            None if result.footprint is None else f"in {duration(spent.time_s)}: {footprint_words(result.footprint)}",
        ),
    )


def _in_the_long_run(result: RunResult) -> Iterator[Figure]:
    report, slower = result.report, result.report.figures.held_slowdown
    if result.long_run is None or slower is None:
        return
    yield Figure(
        footprint_words(result.long_run),
        "saved per 1,000 GPU-hours",
        f"computed from what was measured at {measured_hold_words(report)}; time {percent(100 * slower.value)}",
    )


def _change(saving: EstimateWithError | None) -> EstimateWithError | None:
    """Return a saving as a difference of energy: 12 % saved is −12 %."""
    return None if saving is None else saving.negative


def _known(estimate: EstimateWithError | None) -> str:
    return "unknown" if estimate is None else estimate_words(estimate)


def _met(report: RunReport) -> str | None:
    if report.slowdown_limit is None:
        return None
    limit, sure = f"{100 * report.slowdown_limit:g} % allowed", report.figures.confidence
    if sure is None:
        return limit
    return f"{limit}; {'met' if sure >= LIKELY else 'not met'}, {sure_words(max(sure, 1 - sure))} sure"


def _pictures(report: RunReport) -> Iterator[Section]:
    if report.seen.trace.steps:
        yield LargeChart(power_chart(report))
    for chart in (close_chart(report), plane_chart(report)):
        if chart is not None:
            yield LargeChart(chart)


def _setting_tables(report: RunReport) -> Iterator[Table]:
    """Make a table of settings for each phase of the program."""
    found = phase_summaries(report.windows)
    for place, phase in enumerate(found):
        title = "Settings that were measured"
        if len(found) > 1:
            title = f"{title}, phase {place + 1} of {len(found)}"
        head = tuple(SETTING_HEAD.format(unit=report.seen.unit).split(","))
        rows = tuple(_cells(report, phase, point) for point in phase.points)
        strong = frozenset(row for row, point in enumerate(phase.points) if Purpose.HOLD in point.purposes)
        yield Table(title, head, rows, words=3, strong=strong)


def _cells(report: RunReport, phase: PhaseSummary, point: SettingSummary) -> tuple[str, ...]:
    purposes = ["counters" if one is Purpose.REFERENCE else one.value for one in Purpose if one in point.purposes]
    return (
        point.label,
        ", ".join(purposes),
        judged_words(report, phase, point),
        duration(point.seconds),
        *measured_cells(phase, point),
    )


def _slowdown_limit(report: RunReport) -> tuple[str, ...]:
    lines = [
        compared_words(report),
        slowdown_words(report) or f"the slowdown was not limited; the objective was {report.objective}",
    ]
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
    lines = []
    if report.windows:
        lines.append(_course(report))
        lines.append(
            "All that the search took is counted, and so is the time in which clocks settled. Errors (±) are half the "
            "width of a 95 % interval."
        )
    if report.gpus > 1:
        lines.append(
            f"{counted(report.gpus, 'GPU')} were tuned as one: power and energy of a setting are the mean of them."
        )
    period = last_period_words(report)
    if period:
        lines.append(_sentence(period))
    if report.cpu is not None:
        lines.append(_sentence(cpu_words(report)))
    return tuple(lines)


def _course(report: RunReport) -> str:
    """Return what was done in this run, in general."""
    start = (
        f"The program was not changed; {report.policy} chose the settings, by the objective {report.objective}. The "
        f"{base_name(report)} was measured first"
    )
    if all(window.purpose is Purpose.BASELINE for window in report.windows):
        return f"{start}, and no other setting after it."
    held = ", and the best was held" if report.held not in (None, DRIVER_DEFAULT) else ""
    return f"{start}, and everything is compared with it; then other settings were tried{held}."


def _sentence(words: str) -> str:
    """Add a capital and a full stop."""
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"
