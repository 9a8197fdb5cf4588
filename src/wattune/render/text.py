"""Text from outside, such as names, commands and messages of drivers: made harmless before it is shown."""

from __future__ import annotations

import unicodedata
from html import escape

_STEERING = dict.fromkeys(
    {*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)} - set(map(ord, "\t\n"))
)
"""Control characters, and those that turn the direction of writing; a terminal acts on them instead of showing them."""
_UNFIT = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that would move the cursor or break the line."""


def shown(text: str) -> str:
    """Return a text without characters that steer a terminal."""
    return text if text.isprintable() else text.translate(_STEERING)


def one_line(text: str) -> str:
    """Return a text with a blank for each line break and each character that steers a terminal."""
    if text.isprintable():
        return text
    return "".join(" " if unicodedata.category(letter) in _UNFIT else letter for letter in text)


def escaped(text: str) -> str:
    """Return a text for HTML and SVG, which may hold no control characters either."""
    return escape(shown(text))
