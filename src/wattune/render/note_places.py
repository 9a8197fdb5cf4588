"""Where the words of notes go so that they hide neither points nor each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from wattune.render.chart import Note
from wattune.render.frame import LINE_PX, Box, Frame, text_width

Dots = tuple[tuple[float, float], ...]
"""Pixels that words should not cover."""

_DIRECTIONS = ((1, -1), (-1, -1), (1, 1), (-1, 1), (1, 0), (-1, 0), (0, -1), (0, 1))
_DISTANCES_PX = (16.0, 30.0, 48.0, 70.0, 100.0)
_DOT_PX = 5.0


@dataclass(frozen=True, slots=True)
class PlacedNote:
    """A note, the pixel it points to and the rectangle of its words."""

    note: Note
    x: float
    y: float
    box: Box


def place_notes(notes: Iterable[Note], frame: Frame, *, dots: Dots, taken: tuple[Box, ...] = ()) -> list[PlacedNote]:
    """Each note with the best free rectangle near its point, found one note after the other."""
    placed: list[PlacedNote] = []
    for note in notes:
        x, y = frame.x(note.x), frame.y(note.y)
        candidates = [box for box in _candidates(note, x, y) if box.inside(Box(0, 0, frame.width, frame.height))]
        taken = tuple(other.box for other in placed)
        box = clearest(candidates or _candidates(note, x, y), dots=dots, within=frame.plot, taken=taken)
        placed.append(PlacedNote(note, x, y, box))
    return placed


def clearest(boxes: Iterable[Box], *, dots: Dots, within: Box, taken: tuple[Box, ...] = ()) -> Box:
    """The box that covers fewest dots and other boxes and does not leave the plot; of equals the first."""

    def badness(box: Box) -> float:
        wide = Box(box.left - _DOT_PX, box.top - _DOT_PX, box.right + _DOT_PX, box.bottom + _DOT_PX)
        hidden = sum(wide.holds(x, y) for x, y in dots)
        return 3 * hidden + 100 * sum(box.overlaps(other) for other in taken) + (0 if box.inside(within) else 40)

    return min(boxes, key=badness)


def _candidates(note: Note, x: float, y: float) -> list[Box]:
    """Rectangles around the point, the nearest first, so that of equals the nearest wins."""
    wide = max(text_width(note.text), text_width(note.detail or "")) + 6
    high = LINE_PX * (2 if note.detail else 1)
    boxes = []
    for distance, (across, down) in product(_DISTANCES_PX, _DIRECTIONS):
        reach = distance * (0.75 if across and down else 1.0)
        left = x + across * reach - (0.0 if across > 0 else wide if across < 0 else wide / 2)
        top = y + down * reach - (0.0 if down > 0 else high if down < 0 else high / 2)
        boxes.append(Box(left, top, left + wide, top + high))
    return boxes
