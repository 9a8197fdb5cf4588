"""A tuned run on a terminal: the whole screen as lines, or a line for each event where there is no screen.

Everything that a colour shows is in the words too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.cells import cell_len
from rich.text import Text

from wattune.control.window_state import Settling
from wattune.core.frontier import Frontier, Trial
from wattune.core.reading import Reading
from wattune.core.window import Window, by_phase_words
from wattune.levels.run.report import RunReport
from wattune.levels.run.summaries import EstimateWithError
from wattune.levels.run.view.charts import period_marks
from wattune.levels.run.view.settings import present_phase, setting_rows, table_lines
from wattune.levels.run.view.words import clipped, estimate_words, period_words, state_words
from wattune.render.chart import tick_step
from wattune.render.monitor_view import power_steps
from wattune.render.quantity import quantity, unit_for, with_error
from wattune.render.terminal_graph import Spot, area_graph, scatter

_LONGEST_S, _SHORTEST_S, _PERIODS = 60.0, 4.0, 16.0
"""Time span of the graph: so many periods, within these bounds; a minute without a period."""
_ROOMY = 76
"""Least width for the frontier beside the power."""
_LEAST_GRAPH, _MOST_GRAPH = 3, 9
_PLANE = 34
_LEAST_BAR, _MOST_BAR = 10, 36


def screen_lines(report: RunReport, *, width: int, height: int) -> tuple[Text, ...]:
    """Lay out the screen of a run within a width and a height."""
    top = (_title(report, width), _state(report, width), saving_line(report, width), slowdown_line(report, width=width))
    rows = setting_rows(report)
    room = height - len(top) - 1
    most_rows = min(len(rows) + 1, max(room // 2, 2)) if rows else 0
    events = min(len(report.progress.events), max((room - most_rows) // 6, 1))
    graph = min(room - most_rows - events - 4, _MOST_GRAPH)
    lines = [*top]
    if graph >= _LEAST_GRAPH:
        lines += [Text(), *_pictures(report, width, graph)]
    table = table_lines(rows, width=width, most=most_rows)
    lines += [Text(), *table] if table else []
    left = height - len(lines) - 1
    if events and left > 0:
        lines += [Text(), *event_lines(report, width=width, most=min(left, max(events, 3)))]
    for line in lines:
        line.truncate(width, overflow="crop")
    return tuple(lines[:height])


def saving_line(report: RunReport, width: int) -> Text:
    """Format the change of energy until now, against the baseline for the same work."""
    saved, changed_j, so_far = report.figures.saving, report.changed_j, "" if report.ended else " so far"
    if saved is None or changed_j is None:
        return Text(clipped(f"energy   unknown{so_far}", width), "dim")
    return Text(clipped(f"energy   {estimate_words(saved.negative)}{so_far}, {quantity(changed_j, 'J')}", width))


def slowdown_line(report: RunReport, *, width: int) -> Text:
    """Draw the slowdown as a bar, light over its error, with a mark at the slowdown limit."""
    slower = report.figures.slowdown
    words = f" {estimate_words(slower)}" if slower is not None else " unknown" if report.ended else " unknown so far"
    if report.slowdown_limit is None or report.slowdown_limit <= 0:
        return Text(clipped(f"slowdown{words}, {report.objective}", width), "dim")
    words += f"{',' if slower is None else ' of'} {100 * report.slowdown_limit:g} % allowed"
    bar = min(width - len("slowdown ") - cell_len(words) - 2, _MOST_BAR)
    if bar < _LEAST_BAR:
        return Text(clipped(f"slowdown{words}", width), "bold cyan")
    cells = _bar_cells(report.slowdown_limit, slower, bar)
    return Text.assemble(("slowdown ", "dim"), *cells, (words, "bold cyan"))


def event_lines(report: RunReport, *, width: int, most: int) -> tuple[Text, ...]:
    """Format the latest events, oldest first."""
    shown = report.progress.events[-most:] if most > 0 else ()
    return tuple(Text(clipped(f"{event.time_s:7.1f} s  {event.text}", width)) for event in shown)


def news(before: RunReport | None, now: RunReport) -> tuple[str, ...]:
    """Return lines about new events, windows and states since the last report, for output without a screen."""
    old_events, old_windows = (0, 0) if before is None else (len(before.progress.events), len(before.windows))
    lines = [f"{event.time_s:.1f} s: {clipped(event.text, 400)}" for event in now.progress.events[old_events:]]
    lines += [window_words(now, window) for window in now.windows[old_windows:]]
    doing = _doing(now)
    if doing is not None and (before is None or doing != _doing(before)):
        lines.append(f"{now.seen.trace.duration_s:.1f} s: {doing}")
    return tuple(lines)


def window_words(report: RunReport, window: Window) -> str:
    """Describe a window in one line."""
    setting = by_phase_words(window.by_phase) or str(window.setting)
    at = f"{window.start_s + window.cost.time_s:.1f} s: {window.purpose.value} at {setting}"
    if window.step_time_s is None:
        return f"{at}: {quantity(window.power_w, 'W')}, no step time"
    step_time = with_error(window.step_time_s, window.step_time_error_s, "s")
    return f"{at}: {step_time} per {report.seen.unit}, {quantity(window.power_w, 'W')}"


def _doing(report: RunReport) -> str | None:
    """Describe the present state, without settling; None after the end."""
    if report.ended or isinstance(report.progress.state, Settling):
        return None
    return clipped(state_words(report), 400)


def _title(report: RunReport, width: int) -> Text:
    """Lay out the title and the program; in a narrow terminal only the word simulated remains."""
    mark = "simulated" if report.simulated else ""
    head = f"wattune run{'  ' * report.simulated}"
    if len(head) + len(mark) > width and mark:
        return Text(clipped(mark, width), "bold yellow")
    program = clipped(f"  {report.program}", max(width - len(head) - len(mark), 0))
    return Text.assemble((head, "bold"), (mark, "bold yellow"), (program, "dim"))


def _state(report: RunReport, width: int) -> Text:
    words = clipped(state_words(report), width)
    latest = report.seen.trace.latest
    now = "" if latest is None or latest.power_w is None else f"   {quantity(latest.power_w, 'W')}"
    if latest is not None and latest.sm_mhz is not None:
        now += f", {latest.sm_mhz} MHz"
    return Text.assemble((words, "bold cyan"), (clipped(now, max(width - cell_len(words), 0)), "dim"))


def _bar_cells(slowdown_limit: float, slower: EstimateWithError | None, bar: int) -> Iterator[tuple[str, str]]:
    """Draw a bar from 0 to twice the slowdown limit, with a mark at the limit."""
    value, error = (0.0, 0.0) if slower is None else (slower.value, slower.error or 0.0)
    full, light = (round(bar * min(max(share / (2 * slowdown_limit), 0.0), 1.0)) for share in (value, value + error))
    signs = ["█" if place < full else "▒" if place < light else "·" for place in range(bar)]
    styles = ["bold red" if place >= bar // 2 and sign != "·" else _STYLES[sign] for place, sign in enumerate(signs)]
    cells = list(zip(signs, styles, strict=True))
    yield from (*cells[: bar // 2], ("│", "yellow"), *cells[bar // 2 :])


_STYLES = {"█": "green", "▒": "green dim", "·": "dim"}


def _pictures(report: RunReport, width: int, rows: int) -> tuple[Text, ...]:
    """Draw power over time and, where there is room, the settings by time and energy beside it."""
    plane = _plane(report, width=_PLANE, height=rows) if width >= _ROOMY else ()
    left = width - _PLANE - 2 if plane else width
    power = _power(report, width=left, height=rows)
    if not plane:
        return power
    rows_of_both = zip_longest(power, plane, fillvalue=Text())
    return tuple(Text.assemble(own, " " * (left + 2 - own.cell_len), beside) for own, beside in rows_of_both)


def _power(report: RunReport, *, width: int, height: int) -> tuple[Text, ...]:
    trace, period = report.seen.trace, report.seen.period
    span_s, repeats = _LONGEST_S, period_words(period)
    if period is not None and period.period_s:
        span_s = min(max(_PERIODS * period.period_s, _SHORTEST_S), _LONGEST_S)
        repeats = f"period {with_error(period.period_s, period.error_s, 's')}"
    shown = [reading for reading in trace.recent if reading.time_s >= trace.recent[-1].time_s - span_s]
    most_w = max([reading.power_w or 0.0 for reading in shown] + [1.0])
    step_w = tick_step(0.0, most_w, about=4)
    top_w = -(-most_w // step_w) * step_w
    columns = max(width - 8, 1) * 2
    now_s = trace.recent[-1].time_s if trace.recent else 0.0
    steps = power_steps(trace.recent, now_s=now_s, span_s=span_s, steps=columns)
    graph = area_graph(steps, width=width, height=height, high=top_w, unit="W")
    room = graph[0].plain.index("┤" if "┤" in graph[0].plain else "│") + 1
    words = f"power, last {span_s:.3g} s" + (f"; {repeats}" if repeats else "")
    ticks = _ticks(report, width, room, (now_s, span_s))
    return (Text(clipped(words, width), "dim"), *graph, *([ticks] if ticks else []))


def _ticks(report: RunReport, width: int, room: int, shown: tuple[float, float]) -> Text:
    """Mark the start of each period below the graph; no marks where they would be too close."""
    now_s, span_s = shown
    columns = max(width - room, 1)
    # The graph has two steps to a character, and its newest step at the right edge.
    each_s = span_s / max(width - 8, 1)
    period_s = None if report.seen.period is None else report.seen.period.period_s
    if not report.seen.trace.recent or not period_s or period_s < 2 * each_s:
        return Text()
    signs = [" "] * columns
    for mark_s in period_marks(report, start_s=max(now_s - span_s, report.seen.trace.recent[0].time_s), end_s=now_s):
        place = columns - 1 - int((now_s - mark_s) / each_s)
        if 0 <= place < columns:
            signs[place] = "╵"
    return Text(" " * room + "".join(signs).rstrip(), "yellow")


def _plane(report: RunReport, *, width: int, height: int) -> tuple[Text, ...]:
    """Draw the settings by time and energy, once there are two to compare."""
    phase = present_phase(report)
    trials = [Trial(point, point.unit) for point in phase.points if point.unit is not None]
    if len(trials) < 2 or height < 4:
        return ()
    kept = {id(trial) for trial in Frontier.of(trials)}
    seconds = unit_for((trial.cost.time_s for trial in trials), "s")
    joules = unit_for((trial.cost.energy_j for trial in trials), "J")
    spots = []
    for trial in sorted(trials, key=lambda trial: report.is_held(trial.choice)):
        base, held = trial.choice is phase.baseline, report.is_held(trial.choice)
        sign, style = ("●", "bold yellow") if held else ("○", "") if base else ("·", "dim")
        if id(trial) in kept and not held and not base:
            sign, style = "+", "cyan"
        spots.append(Spot(trial.cost.time_s * seconds.factor, trial.cost.energy_j * joules.factor, sign, style))
    # The words at the right end of the axis need some room beyond it.
    picture = scatter(spots, width=width - 6, height=height - 1, x_unit=seconds.symbol, y_unit=joules.symbol)
    for line in picture:
        line.truncate(width, overflow="crop")
    return (Text(clipped(f"per {report.seen.unit}: ○ base ● held + frontier", width), "dim"), *picture)


_TOP = 4
"""Lines above the pictures."""
_LEAST_LINES = 7
"""Least height of the screen of one of several GPUs; below that each GPU gets one line."""
_GAP = "   "


def job_lines(reports: Sequence[RunReport], *, width: int, height: int) -> tuple[Text, ...]:
    """Lay out the screen of all GPUs of a program within a width and a height."""
    if len(reports) == 1:
        return _with_each(reports[0], width=width, height=height)
    room = height // len(reports)
    if room < _LEAST_LINES:
        head = screen_lines(reports[0], width=width, height=1)
        return (*head, *(_one_line(place, report, width) for place, report in enumerate(reports)))[:height]
    lines: list[Text] = []
    for place, report in enumerate(reports):
        own = screen_lines(report, width=width, height=room - 1)
        lines += [Text(clipped(f"GPU {place}: {report.label}", width), "bold"), *own]
        lines += [Text()] * (room - 1 - len(own))
    return tuple(lines[:height])


def job_news(before: Sequence[RunReport] | None, now: Sequence[RunReport]) -> tuple[str, ...]:
    """Return the `news` of all GPUs, with the index of the GPU where there are several."""
    found: list[str] = []
    for place, report in enumerate(now):
        name = f"GPU {place}: " if len(now) > 1 else ""
        found += [f"{name}{line}" for line in news(None if before is None else before[place], report)]
    return tuple(found)


def each_lines(report: RunReport, *, width: int) -> tuple[Text, ...]:
    """Format the present readings of several GPUs, as many in a row as fit."""
    if len(report.latest) < 2:
        return ()
    words = [_now(place, reading) for place, reading in enumerate(report.latest)]
    column = max(map(cell_len, words)) + len(_GAP)
    beside = max((width + len(_GAP)) // column, 1)
    rows = [words[start : start + beside] for start in range(0, len(words), beside)]
    return tuple(Text(clipped("".join(word.ljust(column) for word in row), width), "dim") for row in rows)


def _with_each(report: RunReport, *, width: int, height: int) -> tuple[Text, ...]:
    """Lay out the screen of GPUs that are tuned as one, with the readings of each where there is room."""
    each = each_lines(report, width=width)
    if not each or height < _LEAST_LINES + len(each):
        return screen_lines(report, width=width, height=height)
    lines = screen_lines(report, width=width, height=height - len(each))
    return (*lines[:_TOP], *each, *lines[_TOP:])


def _one_line(place: int, report: RunReport, width: int) -> Text:
    slower = report.figures.slowdown
    words = f"GPU {place}: {state_words(report)}"
    words += "" if slower is None else f", slowdown {estimate_words(slower)}"
    return Text(clipped(words, width), "bold cyan")


def _now(place: int, reading: Reading) -> str:
    words = [f"GPU {place}"]
    if reading.power_w is not None:
        words.append(quantity(reading.power_w, "W"))
    if reading.sm_mhz is not None:
        words.append(f"{reading.sm_mhz} MHz")
    if reading.temperature_c is not None:
        words.append(f"{reading.temperature_c:.0f} °C")
    return "  ".join(words)
