"""What comes from outside is shown as text and cannot steer a terminal."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from wattune.cli.output import print_error, shown
from wattune.cli.plain_console import PlainConsole
from wattune.core.errors import InputError

HOSTILE = "run\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\x00\r"


@given(st.text())
def test_only_lines_tabs_and_printable_text_are_left(text):
    left = shown(text)
    assert not any(
        ord(letter) < 0x20 or 0x7F <= ord(letter) < 0xA0 for letter in left.replace("\n", "").replace("\t", "")
    )
    assert shown(left) == left
    if text.isprintable():
        assert left == text


def test_a_console_strips_text_of_any_form_and_keeps_its_own_styles():
    out = io.StringIO()
    console = PlainConsole(file=out, force_terminal=True, width=60)
    table = Table(HOSTILE)
    table.add_row(Text(HOSTILE))
    console.print(HOSTILE, style="bold", markup=False)
    console.print(Text.assemble((HOSTILE, "red"), HOSTILE))
    console.print(table)
    written = out.getvalue()
    assert "\x1b[1m" in written  # the style that was asked for
    for steering in ("\x1b]", "\x1b[2J", "\x9b", "\x07", "\x00", "\u202e", "\r"):
        assert steering not in written
    assert written.count("evil") == 5


def test_an_error_is_stripped_too(capsys):
    print_error(InputError(f"there is no {HOSTILE}", hint=HOSTILE))
    assert "\x1b" not in capsys.readouterr().err
