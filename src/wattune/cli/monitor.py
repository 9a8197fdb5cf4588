"""`wattune monitor`: a live screen of power, clocks and temperature of each GPU."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from wattune.cli.keyboard import keyboard
from wattune.cli.output import console, json_option, print_json
from wattune.config import load_config
from wattune.core.errors import DeviceError, InputError
from wattune.devices.passing_time import WallTime

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table as ScreenTable

    from wattune.core.workload import Workload
    from wattune.devices.gpu import Gpu
    from wattune.render.monitor_view import GpuProcess, Watched


SPAN_S = 60.0
"""Length of the graph in time."""
_GRAPH_ROWS = 4
"""Height of the lowest graph that can still be read."""
_GAP = 2
"""Blanks between the columns of the processes."""
_HEAD_START_S = 60.0
"""The time that a simulated GPU has worked when the screen opens, so that it is warm and its sensors have values."""


@click.command()
@click.option("--device", "devices", multiple=True, help="A GPU: nvml:0, sim:a100 … (repeatable). All without it.")
@click.option(
    "--interval", type=click.FloatRange(min=0.02), default=0.5, show_default=True, help="Seconds between readings."
)
@click.option("--workload", default="resnet50", show_default=True, help="What simulated GPUs train meanwhile.")
@click.option("--once", is_flag=True, help="Print one snapshot and end.")
@json_option
def command(devices: tuple[str, ...], interval: float, workload: str, once: bool, as_json: bool) -> None:
    """Watch power, clocks, limit, utilisation, memory, temperature, energy and processes of GPUs.

    q or Ctrl-C ends it. --json prints one snapshot, like --once. No setting is changed and no privilege is needed.
    """
    from wattune.render.monitor_view import Watched, monitor_document

    with _watching(devices, workload) as gpus:
        watched = tuple(Watched(gpu.spec) for gpu in gpus)
        if as_json or once:
            watched = with_processes(read_all(gpus, watched))
            if as_json:
                print_json(monitor_document(watched))
            else:
                out = console()
                out.print(gpu_table(watched, width=out.width))
                rows = sum(len(gpu.processes or ()) for gpu in watched)
                if rows:
                    out.print()
                    out.print(process_table(watched, width=out.width, rows=rows))
            return
        _live(gpus, watched, interval)


@contextmanager
def _watching(devices: tuple[str, ...], workload: str) -> Iterator[tuple[Gpu, ...]]:
    """Open the GPUs to watch; simulated ones play the workload in wall-clock time."""
    from wattune.api import surroundings
    from wattune.devices.open import expand, open_gpus
    from wattune.workloads.catalog import make_workload

    load = make_workload(workload)
    config = load_config()
    around = surroundings(config)
    names = expand(devices or (config.device,), around)
    others = tuple(name for name in names if not name.startswith("sim:"))
    with open_gpus(others, around) as opened:
        found = dict(zip(others, opened, strict=True))
        yield tuple(found[name] if name in found else _at_work(name, load) for name in names)


def _at_work(name: str, workload: Workload) -> Gpu:
    from wattune.devices.simulated import SimulatedGpu
    from wattune.physics.catalog import load_model

    clock = WallTime()
    gpu = SimulatedGpu(load_model(name.removeprefix("sim:")), time=clock)
    gpu.play(workload)
    clock.ahead_s = _HEAD_START_S
    return gpu


def read_all(gpus: Sequence[Gpu], watched: Sequence[Watched]) -> tuple[Watched, ...]:
    """Return each GPU with one more reading, or with the reason why there is none."""
    return tuple(_read(gpu, past) for gpu, past in zip(gpus, watched, strict=True))


def _read(gpu: Gpu, past: Watched) -> Watched:
    try:
        return past.with_reading(gpu.read(), keep_s=SPAN_S)
    except DeviceError as error:
        return replace(past, trouble=error.message)


def with_processes(watched: Sequence[Watched]) -> tuple[Watched, ...]:
    """Return each GPU with the processes that compute on it, where the driver lists them."""
    from wattune.devices.nvml.open import processes

    return tuple(replace(gpu, processes=_known(processes(gpu.spec.uuid))) for gpu in watched)


def _known(found: Mapping[int, int | None] | None) -> tuple[GpuProcess, ...] | None:
    """Add user and command of each process, which another user's or another container's may not show."""
    import psutil

    from wattune.render.monitor_view import GpuProcess

    if found is None:
        return None
    known = []
    for pid, memory_bytes in sorted(found.items()):
        user = command = None
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            user = process.username()
            command = shlex.join(process.cmdline()) or process.name()
        known.append(GpuProcess(pid, memory_bytes, user, command))
    return tuple(known)


def _live(gpus: Sequence[Gpu], watched: tuple[Watched, ...], interval_s: float) -> None:
    from rich.live import Live

    out = console()
    if not out.is_terminal:
        raise InputError("the live screen needs a terminal", hint="use --once, or --json for programs")
    try:
        with keyboard() as keys, Live(console=out, screen=True, auto_refresh=False) as live:
            while True:
                watched = with_processes(read_all(gpus, watched))
                live.update(screen(watched, width=out.width, height=out.height), refresh=True)
                if "q" in keys(interval_s).lower():
                    return
    except KeyboardInterrupt:
        return


def screen(watched: Sequence[Watched], *, width: int, height: int) -> RenderableType:
    """Draw the whole screen from the readings."""
    from rich.console import Group
    from rich.text import Text

    title = Text("wattune monitor", style="bold")
    if any(gpu.spec.simulated for gpu in watched):
        title.append("  simulated", style="bold yellow")
    title.append("  q quits", style="dim")
    count = sum(len(gpu.processes or ()) for gpu in watched)
    rows = min(count, max(height // 4, 1))
    below: list[RenderableType] = [Text(), process_table(watched, width=width, rows=rows)] if rows else []
    room = height - len(watched) - 3 - (rows + 2 if rows else 0)
    return Group(title, Text(), gpu_table(watched, width=width), *_graphs(watched, width, room), *below)


def process_table(watched: Sequence[Watched], *, width: int, rows: int) -> ScreenTable:
    """Return a row per process on the GPUs, the last of `rows` naming how many more there are."""
    from wattune.render.monitor_view import PROCESS_HEAD, process_rows
    from wattune.render.table import Table, screen_table

    every = process_rows(watched)
    seen = every if len(every) <= rows else every[: max(rows - 1, 0)]
    if len(seen) < len(every):
        seen = (*seen, ("", "", "", "", f"and {len(every) - len(seen)} more"))
    others = sum(max(map(len, cells)) + _GAP for cells in list(zip(PROCESS_HEAD, *seen, strict=True))[:-1])
    screen = screen_table(Table("processes", PROCESS_HEAD, seen, words=frozenset((0, 2, 4))), whole=range(5))
    screen.columns[4].max_width = max(width - others, 8)
    return screen


def gpu_table(watched: Sequence[Watched], *, width: int) -> ScreenTable:
    """Return a row per GPU, with the columns that fit."""
    from wattune.render.monitor_view import HEAD, fitting_columns, monitor_row
    from wattune.render.table import Table, screen_table

    rows = tuple(monitor_row(index, gpu) for index, gpu in enumerate(watched))
    left_out = set(range(len(HEAD))) - set(fitting_columns(rows, width=width))
    words = frozenset(HEAD.index(head) for head in ("GPU", "throttled by"))
    return screen_table(Table("GPUs", HEAD, rows, words=words), left_out=left_out, whole=range(len(HEAD)))


def _graphs(watched: Sequence[Watched], width: int, room: int) -> list[RenderableType]:
    """Return a graph of each GPU where all fit, else one of their sum."""
    from rich.text import Text

    from wattune.render.monitor_view import graph_top_w, power_steps, sum_of_graphs
    from wattune.render.terminal_graph import area_graph

    def steps(gpu: Watched) -> list[float | None]:
        if not gpu.readings:
            return [None] * columns
        return power_steps(gpu.readings, now_s=gpu.readings[-1].time_s, span_s=SPAN_S, steps=columns)

    columns = max(width - 8, 1) * 2
    graphs = [steps(gpu) for gpu in watched]
    each = room // len(watched) - 4  # a blank line, the title, and two lines of the time axis
    if each >= _GRAPH_ROWS or len(watched) == 1:
        tops_w = [graph_top_w((gpu,)) for gpu in watched]
        titles = [f"{index} power over the last {SPAN_S:g} s" for index in range(len(watched))]
    else:
        each, titles = room - 4, [f"power of all {len(watched)} over the last {SPAN_S:g} s"]
        graphs, tops_w = [sum_of_graphs(graphs)], [sum(graph_top_w((gpu,)) for gpu in watched)]
    if each < 1:
        return []
    drawn: list[RenderableType] = []
    for title, graph, top_w in zip(titles, graphs, tops_w, strict=True):
        drawn += [Text(), Text(title, style="dim")]
        drawn += area_graph(graph, width=width, height=each, high=top_w, unit="W", span_s=SPAN_S)
    return drawn
