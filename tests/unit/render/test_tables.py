"""A table value has the same columns on a terminal and in a page."""

from io import StringIO

from rich.console import Console

from wattune.render.page import Page, render_page
from wattune.render.table import Table, screen_table

TABLE = Table(
    "GPUs", ("name", "played: W", "note"), (("a\x1b[2Jb", "12.5", "x"), ("c", "7", "y")), words=frozenset((0, 2))
)


def lines(width: int, **options: object) -> list[str]:
    screen = Console(width=width, record=True, file=StringIO())
    screen.print(screen_table(TABLE, **options))
    return [line.rstrip() for line in screen.export_text().splitlines()]


def test_words_are_left_numbers_right_and_foreign_text_is_harmless():
    assert lines(40) == ["        played", "name         W  note", "a [2Jb    12.5  x", "c            7  y"]


def test_columns_can_be_left_out():
    assert lines(40, left_out=(1,)) == ["name    note", "a [2Jb  x", "c       y"]


def test_a_page_aligns_the_same_columns():
    page = Page(title="t", lead="", simulated=False, sections=(TABLE,), foot="")
    assert '<td class="word">c</td><td>7</td><td class="word">y</td>' in render_page(page)
