"""A console that shows text from outside as text: names, messages and file contents cannot steer the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from wattune.render.text import shown


class PlainConsole(Console):
    """Removes control characters from all that is printed; styles and the cursor are set by rich itself."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else shown(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style)
