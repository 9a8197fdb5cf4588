"""The shapes of points as SVG."""

from __future__ import annotations

from html import escape

from wattune.render.chart import Series, Shape

_CORNERS = {
    Shape.SQUARE: ((-4.2, -4.2), (4.2, -4.2), (4.2, 4.2), (-4.2, 4.2)),
    Shape.DIAMOND: ((0.0, -5.8), (5.8, 0.0), (0.0, 5.8), (-5.8, 0.0)),
    Shape.TRIANGLE: ((0.0, -5.6), (5.6, 4.4), (-5.6, 4.4)),
}
_ARM_PX = 4.2


def draw_shape(x: float, y: float, series: Series, *, tip: str | None = None) -> str:
    """The point of a series at a pixel, with its tooltip."""
    title = f"<title>{escape(tip)}</title>" if tip else ""
    fill = f'fill="var(--{series.tone.value})"'
    if series.shape is Shape.CIRCLE:
        return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4.5" {fill}>{title}</circle>'
    if series.shape is Shape.CROSS:
        arms = "".join(f"M{x - _ARM_PX:.1f} {y - a:.1f}L{x + _ARM_PX:.1f} {y + a:.1f}" for a in (_ARM_PX, -_ARM_PX))
        return f'<path class="cross" d="{arms}" stroke="var(--{series.tone.value})">{title}</path>'
    corners = " ".join(f"{x + across:.1f},{y + down:.1f}" for across, down in _CORNERS[series.shape])
    return f'<polygon class="dot" points="{corners}" {fill}>{title}</polygon>'
