"""A table as a value, and its form on a terminal; `wattune.render.page` has its form in HTML."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from wattune.render.text import one_line

if TYPE_CHECKING:
    from rich.table import Table as ScreenTable


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; columns of words are aligned left, the others, numbers, right."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int | frozenset[int] = 1
    """The columns of words: so many from the first on, or these."""
    strong: frozenset[int] = frozenset()
    """The rows in bold."""

    def has_words(self, column: int) -> bool:
        return column < self.words if isinstance(self.words, int) else column in self.words


def screen_table(
    table: Table, *, left_out: Collection[int] = (), whole: Collection[int] = (), gap: int = 2
) -> ScreenTable:
    """Lay a table out for a terminal, without its title and some of its columns.

    Where it is too wide, columns of words are wrapped, except those that are `whole`: these and numbers are cut, and
    show so. A heading breaks after a colon.
    """
    from rich.align import Align
    from rich.table import Table as ScreenTable
    from rich.text import Text

    columns = [column for column in range(len(table.head)) if column not in left_out]
    screen = ScreenTable(box=None, pad_edge=False, header_style="dim", padding=(0, gap, 0, 0), collapse_padding=True)
    for column in columns:
        is_whole = column in whole or not table.has_words(column)
        side: Literal["left", "right"] = "left" if table.has_words(column) else "right"
        screen.add_column(
            Align(table.head[column].replace(": ", "\n"), side, vertical="bottom"),
            justify=side,
            no_wrap=is_whole,
            overflow="ellipsis" if is_whole else "fold",
        )
    for place, row in enumerate(table.rows):
        cells = (Text(one_line(row[column])) for column in columns)
        screen.add_row(*cells, style="bold" if place in table.strong else None)
    return screen
