"""`wattune monitor`: a live screen of what each GPU does."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

import click

from wattune.api import surroundings
from wattune.cli.output import console, json_option, print_json
from wattune.cli.sweep.output import coloured
from wattune.config import load_config
from wattune.core.errors import DeviceError, InputError
from wattune.devices.gpu import Gpu
from wattune.devices.open import expand, open_gpus
from wattune.devices.passing_time import WallTime
from wattune.render.monitor_view import (
    HEAD,
    Watched,
    fitting_columns,
    graph_top_w,
    monitor_document,
    monitor_row,
    power_steps,
    together,
)
from wattune.render.terminal_graph import area_graph

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


class HeadStart(WallTime):
    """Time as it passes on the wall, ahead of it by what was skipped."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead_s = 0.0

    def now_s(self) -> float:
        """Seconds since the clock was made, the skipped ones included."""
        return super().now_s() + self._ahead_s

    def skip(self, seconds: float) -> None:
        """Nothing; the clock is so many seconds further on."""
        self._ahead_s += seconds


class Keyboard:
    """`with Keyboard() as keyboard: keyboard.wait(0.5)`: keys arrive without Enter while the block lasts.

    Without a terminal at standard input there are no keys, and waiting is all it does.
    """

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before: list[object] | None = None

    def __enter__(self) -> Keyboard:
        if self._fd is not None:
            import termios
            import tty

            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd is not None and self._before is not None:
            import termios

            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]

    def wait(self, seconds: float) -> str:
        """The keys that were pressed within so many seconds, as soon as there are any; empty after that time."""
        if self._fd is None:
            time.sleep(max(seconds, 0.0))
            return ""
        ready, _, _ = select.select([self._fd], [], [], max(seconds, 0.0))
        return os.read(self._fd, 64).decode(errors="ignore") if ready else ""


SPAN_S = 60.0
"""How much of the past the graph shows."""
_GRAPH_ROWS = 4
"""The lowest graph that can still be read."""
_HEAD_START_S = 60.0
"""How long a simulated GPU has been at work when its screen opens, so that it is warm and its sensors are filled."""


@click.command()
@click.option("--device", "devices", multiple=True, help="A GPU: nvml:0, sim:a100 … (repeatable). All without it.")
@click.option(
    "--interval", type=click.FloatRange(min=0.02), default=0.5, show_default=True, help="Seconds between readings."
)
@click.option("--workload", default="resnet50", show_default=True, help="What simulated GPUs train meanwhile.")
@click.option("--once", is_flag=True, help="Print one snapshot and end.")
@json_option
def command(devices: tuple[str, ...], interval: float, workload: str, once: bool, as_json: bool) -> None:
    """Watch power, clocks, limit, utilisation, temperature and energy of GPUs.

    q or Ctrl-C leaves. --json prints one snapshot, like --once. Watching sets nothing and needs no privilege.
    """
    with _watching(devices, workload) as gpus:
        watched = tuple(Watched(gpu.spec) for gpu in gpus)
        if as_json or once:
            watched = look(gpus, watched)
            if as_json:
                print_json(monitor_document(watched))
            else:
                console().print(gpu_table(watched, width=console().width))
            return
        _live(gpus, watched, interval)


@contextmanager
def _watching(devices: tuple[str, ...], workload: str) -> Iterator[tuple[Gpu, ...]]:
    """The GPUs to watch; a simulated one works in wall time, so that there is something to see."""
    config = load_config()
    around = surroundings(config)
    names = expand(devices or (config.device,), around)
    others = tuple(name for name in names if not name.startswith("sim:"))
    with open_gpus(others, around) as opened:
        found = dict(zip(others, opened, strict=True))
        yield tuple(found[name] if name in found else _at_work(name, workload) for name in names)


def _at_work(name: str, workload: str) -> Gpu:
    from wattune.devices.simulated import SimulatedGpu
    from wattune.physics.catalog import load_model
    from wattune.workloads.catalog import make_workload

    time = HeadStart()
    gpu = SimulatedGpu(load_model(name.removeprefix("sim:")), time=time)
    gpu.play(make_workload(workload))
    time.skip(_HEAD_START_S)
    return gpu


def look(gpus: Sequence[Gpu], watched: Sequence[Watched]) -> tuple[Watched, ...]:
    """Each GPU with one more reading, or with the reason why it gives none."""
    return tuple(_look(gpu, past) for gpu, past in zip(gpus, watched, strict=True))


def _look(gpu: Gpu, past: Watched) -> Watched:
    try:
        return past.with_reading(gpu.read(), keep_s=SPAN_S)
    except DeviceError as error:
        return replace(past, trouble=error.message)


def _live(gpus: Sequence[Gpu], watched: tuple[Watched, ...], interval_s: float) -> None:
    from rich.live import Live

    out = console()
    if not out.is_terminal:
        raise InputError("the live screen needs a terminal", hint="use --once, or --json for programs")
    try:
        with Keyboard() as keyboard, Live(console=out, screen=True, auto_refresh=False) as live:
            while True:
                watched = look(gpus, watched)
                live.update(screen(watched, width=out.width, height=out.height), refresh=True)
                if "q" in keyboard.wait(interval_s).lower():
                    return
    except KeyboardInterrupt:
        return


def screen(watched: Sequence[Watched], *, width: int, height: int) -> RenderableType:
    """The whole screen as a function of what was seen."""
    from rich.console import Group
    from rich.text import Text

    title = Text("wattune monitor", style="bold")
    if any(gpu.spec.simulated for gpu in watched):
        title.append("  simulated", style="bold yellow")
    title.append("  q leaves", style="dim")
    return Group(title, Text(), gpu_table(watched, width=width), *_graphs(watched, width, height - len(watched) - 3))


def gpu_table(watched: Sequence[Watched], *, width: int) -> Table:
    """A row per GPU, with the columns that fit."""
    from rich.table import Table
    from rich.text import Text

    rows = [monitor_row(index, gpu) for index, gpu in enumerate(watched)]
    columns = fitting_columns(rows, width=width)
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for column in columns:
        words = HEAD[column] in ("GPU", "throttled by")
        table.add_column(HEAD[column], justify="left" if words else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(row[column]) for column in columns))
    return table


def _graphs(watched: Sequence[Watched], width: int, room: int) -> list[RenderableType]:
    """A graph of each GPU where all fit, else one of their sum."""
    columns = max(width - 8, 1) * 2
    graphs = [_steps(gpu, columns) for gpu in watched]
    each = room // len(watched) - 2
    if each >= _GRAPH_ROWS or len(watched) == 1:
        tops_w = [graph_top_w((gpu,)) for gpu in watched]
        titles = [f"{index} power over the last {SPAN_S:g} s" for index in range(len(watched))]
    else:
        each, titles = room - 2, [f"power of all {len(watched)} over the last {SPAN_S:g} s"]
        graphs, tops_w = [together(graphs)], [sum(graph_top_w((gpu,)) for gpu in watched)]
    if each < 1:
        return []
    return [
        part
        for title, graph, top_w in zip(titles, graphs, tops_w, strict=True)
        for part in _titled(title, coloured(area_graph(graph, width=width, height=each, high=top_w, unit="W")))
    ]


def _titled(title: str, picture: RenderableType) -> tuple[RenderableType, ...]:
    from rich.text import Text

    return Text(), Text(title, style="dim"), picture


def _steps(watched: Watched, columns: int) -> list[float | None]:
    if not watched.readings:
        return [None] * columns
    return power_steps(watched.readings, now_s=watched.readings[-1].time_s, span_s=SPAN_S, steps=columns)
