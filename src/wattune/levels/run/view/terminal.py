"""A run that is being tuned, for a terminal: the whole screen as lines, and lines for where there is no screen.

Everything that a colour shows is in the words too.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from wattune.core.frontier import Frontier, Trial
from wattune.core.window import Window
from wattune.levels.run.view.charts import period_marks
from wattune.levels.run.view.settings import EstimateWithError, held_intervals_of
from wattune.levels.run.view.table import clipped, setting_rows, table_lines
from wattune.levels.run.view.view_model import RunView, TuningStage, state_words
from wattune.levels.run.view.words import estimate_words, period_words
from wattune.render.chart import tick_step
from wattune.render.monitor_view import power_steps
from wattune.render.quantity import quantity, unit_for, with_error
from wattune.render.terminal_graph import Spot, area_graph, scatter

_LONGEST_S, _SHORTEST_S, _PERIODS = 60.0, 4.0, 16.0
"""The graph shows so many periods, within these bounds; a minute where nothing repeats."""
_ROOMY = 76
"""Columns from which on the frontier stands beside the power."""
_LEAST_GRAPH, _MOST_GRAPH = 3, 9
_PLANE = 34
_LEAST_BAR, _MOST_BAR = 10, 36


def screen_lines(view: RunView, *, width: int, height: int) -> tuple[Text, ...]:
    """The whole screen, never wider or higher than that."""
    top = (_title(view, width), _state(view, width), slowdown_line(view, width=width))
    rows = setting_rows(view)
    room = height - len(top) - 1
    most_rows = min(len(rows) + 1, max(room // 2, 2)) if rows else 0
    events = min(len(view.events), max((room - most_rows) // 6, 1))
    graph = min(room - most_rows - events - 4, _MOST_GRAPH)
    lines = [*top]
    if graph >= _LEAST_GRAPH:
        lines += [Text(), *_pictures(view, width, graph)]
    table = table_lines(rows, width=width, most=most_rows)
    lines += [Text(), *table] if table else []
    left = height - len(lines) - 1
    if events and left > 0:
        lines += [Text(), *event_lines(view, width=width, most=min(left, max(events, 3)))]
    for line in lines:
        line.truncate(width, overflow="crop")
    return tuple(lines[:height])


def slowdown_line(view: RunView, *, width: int) -> Text:
    """The promise as a bar: full up to the slowdown, light over its error, with a mark at what was promised."""
    slower = view.figures.slowdown
    words = f" {estimate_words(slower)}" if slower is not None else " not known yet"
    if view.slowdown_limit is None or view.slowdown_limit <= 0:
        return Text(clipped(f"slowdown{words}, {view.objective}", width), "dim")
    words += f"{',' if slower is None else ' of'} {100 * view.slowdown_limit:g} % promised"
    bar = min(width - len("slowdown ") - cell_len(words) - 2, _MOST_BAR)
    if bar < _LEAST_BAR:
        return Text(clipped(f"slowdown{words}", width), "bold cyan")
    cells = _bar_cells(view.slowdown_limit, slower, bar)
    return Text.assemble(("slowdown ", "dim"), *cells, (words, "bold cyan"))


def event_lines(view: RunView, *, width: int, most: int) -> tuple[Text, ...]:
    """The latest events, oldest first."""
    shown = view.events[-most:] if most > 0 else ()
    return tuple(Text(clipped(f"{event.time_s:7.1f} s  {event.text}", width)) for event in shown)


def news(before: RunView | None, now: RunView) -> tuple[str, ...]:
    """What is worth a line since the last look, where there is no screen: events, windows, and what is done next."""
    old_events, old_windows = (0, 0) if before is None else (len(before.events), len(before.windows))
    lines = [f"{event.time_s:.1f} s: {clipped(event.text, 400)}" for event in now.events[old_events:]]
    lines += [window_words(now, window) for window in now.windows[old_windows:]]
    doing = _doing(now)
    if doing is not None and (before is None or doing != _doing(before)):
        lines.append(f"{now.trace.duration_s:.1f} s: {doing}")
    return tuple(lines)


def window_words(view: RunView, window: Window) -> str:
    """A window in one line."""
    at = f"{window.start_s + window.cost.time_s:.1f} s: {window.purpose.value} at {window.setting}"
    if window.step_time_s is None:
        return f"{at}: {quantity(window.power_w, 'W')}, no pace"
    step_time = with_error(window.step_time_s, window.step_time_error_s, "s")
    return f"{at}: {step_time} per {view.unit}, {quantity(window.power_w, 'W')}"


def _doing(view: RunView) -> str | None:
    """What is done, without what changes at every look."""
    if view.stage in (TuningStage.SETTLING, TuningStage.OVER):
        return None
    return clipped(state_words(view), 400)


def _title(view: RunView, width: int) -> Text:
    """The name, which gives way to the word simulated where there is no room for both, and the program."""
    mark = "simulated" if view.simulated else ""
    head = f"wattune run{'  ' * view.simulated}"
    if len(head) + len(mark) > width and mark:
        return Text(clipped(mark, width), "bold yellow")
    program = clipped(f"  {view.program}", max(width - len(head) - len(mark), 0))
    return Text.assemble((head, "bold"), (mark, "bold yellow"), (program, "dim"))


def _state(view: RunView, width: int) -> Text:
    words = clipped(state_words(view), width)
    latest = view.trace.latest
    now = "" if latest is None or latest.power_w is None else f"   {quantity(latest.power_w, 'W')}"
    if latest is not None and latest.sm_mhz is not None:
        now += f", {latest.sm_mhz} MHz"
    return Text.assemble((words, "bold cyan"), (clipped(now, max(width - cell_len(words), 0)), "dim"))


def _bar_cells(slowdown_limit: float, slower: EstimateWithError | None, bar: int) -> Iterator[tuple[str, str]]:
    """A bar from 0 to twice the promise, cut at the promise by a mark."""
    value, error = (0.0, 0.0) if slower is None else (slower.value, slower.error or 0.0)
    full, light = (round(bar * min(max(share / (2 * slowdown_limit), 0.0), 1.0)) for share in (value, value + error))
    signs = ["█" if place < full else "▒" if place < light else "·" for place in range(bar)]
    styles = ["bold red" if place >= bar // 2 and sign != "·" else _STYLES[sign] for place, sign in enumerate(signs)]
    cells = list(zip(signs, styles, strict=True))
    yield from (*cells[: bar // 2], ("│", "yellow"), *cells[bar // 2 :])


_STYLES = {"█": "green", "▒": "green dim", "·": "dim"}


def _pictures(view: RunView, width: int, rows: int) -> tuple[Text, ...]:
    """Power over time and, where there is room, the gears by time and energy beside it."""
    plane = _plane(view, width=_PLANE, height=rows) if width >= _ROOMY else ()
    left = width - _PLANE - 2 if plane else width
    power = _power(view, width=left, height=rows)
    if not plane:
        return power
    lines = []
    for place in range(max(len(power), len(plane))):
        own = power[place] if place < len(power) else Text()
        beside = plane[place] if place < len(plane) else Text()
        lines.append(Text.assemble(own, " " * (left + 2 - own.cell_len), beside))
    return tuple(lines)


def _power(view: RunView, *, width: int, height: int) -> tuple[Text, ...]:
    trace, period = view.trace, view.period
    span_s = _LONGEST_S
    if period is not None and period.period_s:
        span_s = min(max(_PERIODS * period.period_s, _SHORTEST_S), _LONGEST_S)
    shown = [reading for reading in trace.recent if reading.time_s >= trace.recent[-1].time_s - span_s]
    most_w = max([reading.power_w or 0.0 for reading in shown] + [1.0])
    step_w = tick_step(0.0, most_w, about=4)
    top_w = -(-most_w // step_w) * step_w
    columns = max(width - 8, 1) * 2
    now_s = trace.recent[-1].time_s if trace.recent else 0.0
    steps = power_steps(trace.recent, now_s=now_s, span_s=span_s, steps=columns)
    graph = area_graph(steps, width=width, height=height, high=top_w, unit="W")
    room = graph[0].plain.index("┤" if "┤" in graph[0].plain else "│") + 1
    words = f"power, last {span_s:.3g} s" + ("" if period is None else f"; {_period(view)}")
    ticks = _ticks(view, width, room, (now_s, span_s))
    return (Text(clipped(words, width), "dim"), *graph, *([ticks] if ticks else []))


def _period(view: RunView) -> str:
    period = view.period
    if period is None or period.period_s is None:
        return period_words(period)
    return f"period {with_error(period.period_s, period.error_s, 's')}"


def _ticks(view: RunView, width: int, room: int, shown: tuple[float, float]) -> Text:
    """A mark below the graph where each period begins; none where they would run into each other."""
    now_s, span_s = shown
    columns = max(width - room, 1)
    # The graph has two steps to a character, and its newest step at the right edge.
    each_s = span_s / max(width - 8, 1)
    if view.period is None or not view.trace.recent or not view.period.period_s or view.period.period_s < 2 * each_s:
        return Text()
    signs = [" "] * columns
    for mark_s in period_marks(view, start_s=max(now_s - span_s, view.trace.recent[0].time_s), end_s=now_s):
        place = columns - 1 - int((now_s - mark_s) / each_s)
        if 0 <= place < columns:
            signs[place] = "╵"
    return Text(" " * room + "".join(signs).rstrip(), "yellow")


def _plane(view: RunView, *, width: int, height: int) -> tuple[Text, ...]:
    """The gears by time and energy, once there are two to compare."""
    held_intervals = held_intervals_of(view.since_change)
    trials = (
        [Trial(point, point.unit) for point in held_intervals[0].points if point.unit is not None]
        if held_intervals
        else []
    )
    if len(trials) < 2 or height < 4:
        return ()
    kept = {id(trial) for trial in Frontier.of(trials)}
    seconds = unit_for((trial.cost.time_s for trial in trials), "s")
    joules = unit_for((trial.cost.energy_j for trial in trials), "J")
    spots = []
    for trial in sorted(trials, key=lambda trial: trial.choice.setting == view.held):
        base, held = trial.choice is held_intervals[0].baseline, trial.choice.setting == view.held
        sign, style = ("●", "bold yellow") if held else ("○", "") if base else ("·", "dim")
        if id(trial) in kept and not held and not base:
            sign, style = "+", "cyan"
        spots.append(Spot(trial.cost.time_s * seconds.factor, trial.cost.energy_j * joules.factor, sign, style))
    # The words at the right end of the axis need some room beyond it.
    picture = scatter(spots, width=width - 6, height=height - 1, x_unit=seconds.symbol, y_unit=joules.symbol)
    for line in picture:
        line.truncate(width, overflow="crop")
    return (Text(clipped(f"per {view.unit}: ○ base ● held + frontier", width), "dim"), *picture)
