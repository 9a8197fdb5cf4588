"""The axes that pictures of jobs share."""

from __future__ import annotations

from collections.abc import Sequence

from wattune.render.chart import Axis, Scale

_WIDE = 8.0
"""Values that differ by more than this factor are drawn on an axis that goes by factors."""
_WIDEST = 1e9
"""Values further apart than this are no costs of one job, and would leave nothing to see on either axis."""
_FEW = 12
"""So many numbers stand along an axis at most."""


def size_axis(sizes: tuple[int, ...], title: str) -> Axis:
    """An axis by factors that names every batch size that it has room for."""
    return Axis(
        title=title,
        scale=Scale.LOG,
        low=sizes[0] / 1.3,
        high=sizes[-1] * 1.3,
        marks=tuple((float(size), str(size)) for size in sizes),
    )


def count_axis(title: str, last: int) -> Axis:
    """An axis for things that are counted from 1 on, without halves of them."""
    step = next(size * 10**power for power in range(20) for size in (1, 2, 5) if last <= _FEW * size * 10**power)
    marks = tuple((float(number), str(number)) for number in range(step, last + 1, step))
    return Axis(title=title, low=0.0, high=max(last * 1.03, last + 0.5), marks=marks)


def value_axis(title: str, unit: str | None, values: Sequence[float]) -> Axis:
    """An axis from 0, or by factors where the values differ by too much for that."""
    if values and max(values) > _WIDE * min(values):
        return factor_axis(title, unit, values)
    return Axis(title=title, unit=unit, low=min(0.0, min(values, default=0.0)))


def factor_axis(title: str, unit: str | None, values: Sequence[float]) -> Axis:
    """An axis by factors where all values have a place on one, else one by equal steps."""
    fits = bool(values) and min(values) > 0 and max(values) < _WIDEST * min(values)
    return Axis(title=title, unit=unit, scale=Scale.LOG if fits else Scale.LINEAR)
