"""A partition as two streams over time: its operations above, its collective below; as SVG and for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from rich.text import Text

from wattune.levels.overlap.partitions import KernelPartition
from wattune.levels.overlap.simulated_stages import partition_cost_table
from wattune.levels.overlap.space import PartitionChoice
from wattune.physics.gpu_model import GpuModel
from wattune.physics.overlap import compute_cost, slot_times
from wattune.render.chart import tick_labels, ticks
from wattune.render.frame import LINE_PX, TITLE_PX, text_width
from wattune.render.quantity import quantity
from wattune.render.svg import STYLE as CHART_STYLE

COMPUTE_BOUND = ("linear", "attn")
"""Slots whose operations are limited by arithmetic; the others by memory."""

STREAM_STYLE = (
    CHART_STYLE
    + """
.streams .matrix{fill:var(--blue)}
.streams .memory{fill:var(--sky)}
.streams .collective{fill:var(--orange)}
.streams rect{stroke:var(--paper);stroke-width:.8}
.streams .on{fill:var(--paper);font-size:10px;text-anchor:middle;pointer-events:none}
.streams .head{font-weight:600;fill:var(--ink)}
""".replace("\n", "")
)

_ROW_PX = 18.0
_LEFT_PX = 64.0


@dataclass(frozen=True, slots=True)
class StreamBar:
    """An operation or a collective from start to end."""

    label: str
    start_s: float
    end_s: float

    @property
    def tip(self) -> str:
        took = quantity(self.end_s - self.start_s, "s")
        return f"{self.label}: {took} from {quantity(self.start_s, 's') if self.start_s else '0'}"


@dataclass(frozen=True, slots=True)
class PartitionStreams:
    """Both streams of a partition at a setting."""

    name: str
    choice: PartitionChoice
    compute: tuple[StreamBar, ...]
    collective: StreamBar | None
    energy_j: float

    @property
    def end_s(self) -> float:
        return max(bar.end_s for bar in (*self.compute, *([self.collective] if self.collective else [])))

    @property
    def heading(self) -> str:
        start = "after computation" if self.choice.sequential else f"from {self.choice.launch} on"
        own = f", collective {start}, {self.choice.comm_sms} SMs" if self.collective else ""
        cost = f"{quantity(self.end_s, 's')}, {quantity(self.energy_j, 'J')}"
        return f"{self.name} at {self.choice.sm_mhz} MHz{own}: {cost}"


def partition_streams(partition: KernelPartition, gpu: GpuModel, choice: PartitionChoice) -> PartitionStreams:
    """Compute when each operation and the collective run on a simulated GPU, repeated without joining the streams."""
    communication, phases = partition.communication, partition.phases
    if communication is None:
        at = gpu.clocks[0].sm_mhz.index(choice.sm_mhz)
        ends = tuple(float(compute_cost(gpu, phases[:n]).time_s[at]) for n in range(1, len(phases) + 1))
        collective = None
    else:
        launch = None if choice.sequential else partition.slots.index(choice.launch)
        times = slot_times(gpu, phases, communication, comm_sms=choice.comm_sms, launch=launch, sm_mhz=choice.sm_mhz)
        ends = times.phase_ends_s
        collective = StreamBar(f"{communication.name}, {choice.comm_sms} SMs", times.comm_start_s, times.comm_end_s)
    spans = zip(partition.slots, (0.0, *ends[:-1]), ends, strict=True)
    energy_j = float(partition_cost_table(partition, gpu, [choice]).energy_j[0])
    bars = tuple(StreamBar(slot, start, end) for slot, start, end in spans)
    return PartitionStreams(partition.name, choice, bars, collective, energy_j)


def draw_streams(views: Sequence[PartitionStreams], *, simulated: bool, width: float = 1040) -> str:
    """Draw partitions under each other on one scale of time as an SVG element whose colours are in `STREAM_STYLE`."""
    end_s = max(view.end_s for view in views)
    scale = (width - _LEFT_PX - 24) / end_s
    parts = list(_legend(simulated))
    top = TITLE_PX + 2 * LINE_PX + 14
    for view in views:
        parts += _panel(view, scale, top)
        top += LINE_PX + 2 * _ROW_PX + 20
    parts += _axis(end_s, scale, top - 10)
    height = top + 2 * LINE_PX
    label = escape("; ".join(view.heading for view in views), quote=True)
    box = f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{label}"'
    return f'<svg class="chart streams" xmlns="http://www.w3.org/2000/svg" {box}>\n' + "\n".join(parts) + "\n</svg>"


def _legend(simulated: bool) -> Iterator[str]:
    title = "Computation of one nanobatch beside the collective of another" + (" (simulated)" if simulated else "")
    yield f'<text class="title" x="0" y="{TITLE_PX:g}">{title}</text>'
    x, y = 0.0, TITLE_PX + LINE_PX + 2
    words = (("matrix", "limited by arithmetic"), ("memory", "limited by memory"), ("collective", "collective"))
    for style, text in words:
        yield f'<rect class="{style}" x="{x:.1f}" y="{y - 10:.1f}" width="14" height="12"/>'
        yield f'<text x="{x + 20:.1f}" y="{y:g}">{text}</text>'
        x += 40 + text_width(text)


def _panel(view: PartitionStreams, scale: float, top: float) -> Iterator[str]:
    yield f'<text class="head" x="0" y="{top:.1f}">{escape(view.heading)}</text>'
    for place, name in enumerate(("compute", "collective")):
        y = top + 8 + place * _ROW_PX + _ROW_PX / 2 + 4
        yield f'<text x="{_LEFT_PX - 6:.1f}" y="{y:.1f}" text-anchor="end">{name}</text>'
    for bar in view.compute:
        style = "matrix" if bar.label.startswith(COMPUTE_BOUND) else "memory"
        yield _drawn(bar, style, scale, top + 8)
    if view.collective is not None:
        yield _drawn(view.collective, "collective", scale, top + 8 + _ROW_PX)


def _drawn(bar: StreamBar, style: str, scale: float, y: float) -> str:
    left, wide = _LEFT_PX + bar.start_s * scale, (bar.end_s - bar.start_s) * scale
    size = f'x="{left:.2f}" y="{y:.1f}" width="{wide:.2f}" height="{_ROW_PX - 2:g}"'
    drawn = f'<rect class="{style}" {size}><title>{escape(bar.tip)}</title></rect>'
    if text_width(bar.label, size_px=10) + 4 <= wide:
        drawn += f'<text class="on" x="{left + wide / 2:.1f}" y="{y + 11.5:.1f}">{escape(bar.label)}</text>'
    return drawn


def _axis(end_s: float, scale: float, y: float) -> Iterator[str]:
    values = ticks(0.0, end_s * 1e3, about=8)
    yield f'<line class="axis" x1="{_LEFT_PX:g}" y1="{y:.1f}" x2="{_LEFT_PX + end_s * scale:.1f}" y2="{y:.1f}"/>'
    for value, label in zip(values, tick_labels(values), strict=True):
        x = _LEFT_PX + value / 1e3 * scale
        yield f'<line class="axis" x1="{x:.1f}" y1="{y:.1f}" x2="{x:.1f}" y2="{y + 4:.1f}"/>'
        words = f"{label} ms" if value == values[-1] else label
        yield f'<text x="{x:.1f}" y="{y + LINE_PX:.1f}" text-anchor="middle">{words}</text>'


def text_streams(views: Sequence[PartitionStreams], *, width: int) -> tuple[Text, ...]:
    """Draw partitions for a terminal: a character per interval of time, slots by their names where there is room."""
    end_s = max(view.end_s for view in views)
    columns = max(width - 2, 10)
    lines: list[Text] = []
    for view in views:
        lines.append(Text(view.heading, "bold"))
        lines.append(_row(view.compute, end_s, columns))
        if view.collective is not None:
            lines.append(_row((view.collective,), end_s, columns))
    return tuple(lines)


def _row(bars: Sequence[StreamBar], end_s: float, columns: int) -> Text:
    row, place = Text("  "), 0
    for bar in bars:
        first, last = round(bar.start_s / end_s * columns), round(bar.end_s / end_s * columns)
        row.append(" " * (first - place))
        wide = last - first
        names = (bar.label, bar.label.partition("_")[0].partition(",")[0])
        label = next((f" {name}" for name in names if len(name) + 3 <= wide), "")
        row.append("▕" * min(wide, 1) + f"{label} ".ljust(max(wide - 1, 0), "─")[: max(wide - 1, 0)], _style(bar))
        place = last
    return row


def _style(bar: StreamBar) -> str:
    if "SMs" in bar.label:
        return "yellow"
    return "blue" if bar.label.startswith(COMPUTE_BOUND) else "cyan"
