"""The roofline of a GPU with the layers of a network on it, at two pairs of clocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

from wattune.core.workload import Pipe, Workload
from wattune.levels.layer.costs import BACKWARD, FORWARD, STEP
from wattune.levels.layer.demand import LayerDemand, Limit, Roofline, demands, intensity
from wattune.physics.gpu_model import GpuModel
from wattune.render.chart import Axis, Chart, Mark, Point, ReferenceLine, Scale, Series, Shape, Tone, Way
from wattune.render.quantity import counted, number, quantity

# Crosses, because backward layers often lie on their forward layers.
_PASSES = {FORWARD: (Tone.BLUE, Shape.CIRCLE), BACKWARD: (Tone.ORANGE, Shape.CROSS)}
_OTHERS = (Tone.GREEN, Shape.DIAMOND)
_ROOFS = {Pipe.FP32: Tone.GREY, Pipe.TF32: Tone.PURPLE, Pipe.FP16: Tone.GOLD}
_LOWER = (0.5, 0.7)
"""Shares of the default core and memory clock near which the second pair lies; unequal, so that the ridge moves."""


@dataclass(frozen=True, slots=True)
class LayersAt:
    """A roofline, and every layer at its clocks."""

    roofline: Roofline
    layers: tuple[LayerDemand, ...]

    @classmethod
    def of(cls, model: GpuModel, workload: Workload, clocks_mhz: tuple[int, int], *, scope: str = STEP) -> LayersAt:
        """Compute the layers of a pass, or of a whole step, at a core and a memory clock."""
        roofline = Roofline.of(model, *clocks_mhz)
        found = demands(model, workload, roofline)
        return cls(roofline, tuple(one for one in found if scope in (STEP, pass_of(one.phase.name))))

    @property
    def title(self) -> str:
        return f"{self.roofline.sm_mhz} MHz, memory {self.roofline.mem_mhz} MHz"

    @property
    def pipes(self) -> tuple[Pipe, ...]:
        """The arithmetic units that the layers use."""
        used = {layer.phase.pipe for layer in self.layers if layer.phase.flops}
        return tuple(pipe for pipe in Pipe if pipe in used)

    @property
    def time_s(self) -> float:
        return sum(layer.time_s for layer in self.layers)

    def share(self, limit: Limit) -> float:
        """Return the share of the time in layers with this limit."""
        return sum(layer.time_s for layer in self.layers if layer.limit is limit) / self.time_s


def pass_of(name: str) -> str:
    """Return the pass of a layer: `forward` of `forward/stem/conv`."""
    return name.partition("/")[0]


def limit_words(place: LayersAt) -> str:
    """Say what limits how much of the time at a pair of clocks."""
    found = sorted(((place.share(limit), limit.value) for limit in Limit), reverse=True)
    (most, first), *others = found
    rest = "".join(f", {100 * share:.0f} % by {name}" for share, name in others if share >= 0.005)
    return f"at {place.title}, {100 * most:.0f} % of the time is limited by {first}{rest}"


def lower_pair(clocks_mhz: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return a pair well below the default, which is the first: both clocks lower where the GPU has such a pair."""
    core, memory = clocks_mhz[0]
    lower = [pair for pair in clocks_mhz if pair[0] < core] or list(clocks_mhz)

    def distance(pair: tuple[int, int]) -> float:
        return abs(pair[0] / core - _LOWER[0]) + abs(pair[1] / memory - _LOWER[1])

    return min(lower, key=distance)


def roofline_charts(places: Sequence[LayersAt], *, simulated: bool) -> tuple[Chart, ...]:
    """Draw a roofline per pair of clocks, all on the same axes."""
    drawn = [layer for place in places for layer in place.layers if _is_drawn(layer)]
    if not drawn:
        return ()
    x = [intensity(layer.phase) for layer in drawn]
    ridges = [place.roofline.ridge(pipe) for place in places for pipe in place.pipes]
    rates = [place.roofline.flops_per_s[pipe] for place in places for pipe in place.pipes]
    x_axis = Axis(
        title="arithmetic intensity",
        unit="FLOP/byte",
        scale=Scale.LOG,
        low=min(x) / 1.5,
        high=max(*x, *ridges) * 1.5,
    )
    y_axis = Axis(
        title="achieved rate",
        unit="TFLOP/s",
        scale=Scale.LOG,
        low=min(layer.rate for layer in drawn) / 1.5e12,
        high=max(rates) * 4e-12,
    )
    return tuple(_chart(place, x_axis, y_axis, simulated=simulated) for place in places)


def _is_drawn(layer: LayerDemand) -> bool:
    """Return whether a logarithmic chart can show a layer: it has arithmetic and memory traffic."""
    return layer.rate > 0 and intensity(layer.phase) > 0 and isfinite(intensity(layer.phase))


def _chart(place: LayersAt, x: Axis, y: Axis, *, simulated: bool) -> Chart:
    shares = ", ".join(f"{100 * place.share(limit):.0f} % {limit.value}" for limit in Limit if place.share(limit) > 0)
    widest = max(place.pipes, key=place.roofline.ridge)
    return Chart(
        title=place.title,
        subtitle=f"{'simulated; ' if simulated else ''}time: {shares}",
        x=x,
        y=y,
        series=(*(_roof(place.roofline, pipe, x) for pipe in place.pipes), *_layer_series(place)),
        rules=(ReferenceLine(place.roofline.ridge(widest), f"ridge {place.roofline.ridge(widest):.0f}", Way.UPRIGHT),),
    )


def _roof(roofline: Roofline, pipe: Pipe, x: Axis) -> Series:
    low, high = x.low or 1.0, x.high or 1.0
    rate, ridge = roofline.flops_per_s[pipe], roofline.ridge(pipe)
    corners = [(low, low * roofline.bytes_per_s), (ridge, rate), (high, rate)]
    points = tuple(Point(at, flops * 1e-12) for at, flops in corners if at >= low)
    return Series(name=f"roof, {pipe.value.upper()}", points=points, tone=_ROOFS[pipe])


def _layer_series(place: LayersAt) -> tuple[Series, ...]:
    groups: dict[str, list[LayerDemand]] = {}
    for layer in place.layers:
        if _is_drawn(layer):
            groups.setdefault(pass_of(layer.phase.name), []).append(layer)
    found = []
    for name, layers in groups.items():
        tone, shape = _PASSES.get(name, _OTHERS)
        points = tuple(_points(layers, place.roofline))
        found.append(Series(name=name, points=points, mark=Mark.POINTS, tone=tone, shape=shape))
    return tuple(found)


def _points(layers: Sequence[LayerDemand], roofline: Roofline) -> Iterator[Point]:
    """Yield a point for all layers at one place, with the tip of the longest."""
    places: dict[tuple[str, str], list[LayerDemand]] = {}
    for layer in layers:
        places.setdefault((f"{intensity(layer.phase):.2g}", f"{layer.rate:.2g}"), []).append(layer)
    for group in places.values():
        longest = max(group, key=lambda layer: layer.time_s)
        more = f"\nand {counted(len(group) - 1, 'layer')} like it" if len(group) > 1 else ""
        yield Point(intensity(longest.phase), longest.rate * 1e-12, layer_tip(longest, roofline) + more)


def layer_tip(layer: LayerDemand, roofline: Roofline) -> str:
    """Return the tooltip of a layer."""
    phase, ridge = layer.phase, roofline.ridge(layer.phase.pipe)
    lines = (
        phase.name,
        f"{quantity(phase.flops, 'FLOP')}, {quantity(phase.dram_bytes, 'B')}",
        f"{number(intensity(phase))} FLOP/byte; ridge of {phase.pipe.value.upper()}: {number(ridge)}",
        f"{quantity(layer.time_s, 's')}, limited by {layer.limit.value}",
    )
    return "\n".join(lines)
