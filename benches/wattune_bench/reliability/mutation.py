"""Mutations of valid text, as transfers, editors and attackers make them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

_TOKEN = re.compile(r"\s+|[A-Za-z_][\w.]*|[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?|.", re.DOTALL)

NUMBERS = (
    *("0", "-1", "-0.0", "00", "+7", ".", "1.", ".5", "0x10", "1_000", "١٢٣", "1e5", "0.5", "2147483648"),
    *("nan", "NaN", "inf", "-Infinity", "Infinity", "1e400", "-1e400", "1e308", "1e-320", "5e-324", "1e999999999"),
    *("9" * 400, "-" + "9" * 400, "9" * 5000, "9007199254740993", "18446744073709551616"),
)
WORDS = (
    *("", "null", "true", "false", "[]", "{}", '""', "None", "{batch_size}", "../../etc/passwd", "=1+1"),
    *("\x00", "\x1b[2J", "\ufeff", "\u202e", "\u2028", "é", "😀", "\n", "\r", "\r\n", "\t", "\\", "\\u0000"),
    *("'", '"', ",", "%", "#", ";", ":", "@", "-", "--", "*", "(a+)+$", "(?P<metric>", "__import__('os')"),
    *("a" * 2000, "[" * 2000, '{"a":' * 2000, "(" * 300),
)


def mutated(text: str, chance: random.Random) -> str:
    """Return the text with one to four mutations."""
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        text = chance.choice(_KINDS)(text, chance)
    return text


def _replace_token(text: str, chance: random.Random) -> str:
    tokens = _TOKEN.findall(text)
    if not tokens:
        return chance.choice(WORDS)
    place = chance.randrange(len(tokens))
    tokens[place] = chance.choice(chance.choice((NUMBERS, WORDS, tokens)))
    return "".join(tokens)


def _replace_number(text: str, chance: random.Random) -> str:
    numbers = list(re.finditer(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?", text))
    if not numbers:
        return text + chance.choice(NUMBERS)
    found = chance.choice(numbers)
    return text[: found.start()] + chance.choice(NUMBERS) + text[found.end() :]


def _swap_lines(text: str, chance: random.Random) -> str:
    lines = text.split("\n")
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return "\n".join(lines)


def _repeat_or_drop_line(text: str, chance: random.Random) -> str:
    lines = text.split("\n")
    place = chance.randrange(len(lines))
    lines[place : place + 1] = lines[place : place + 1] * chance.choice((0, 2, 50))
    return "\n".join(lines)


def _cut(text: str, chance: random.Random) -> str:
    """Cut off an end, as a transfer that broke off."""
    place = chance.randint(0, len(text))
    return chance.choice((text[:place], text[place:]))


def _drop(text: str, chance: random.Random) -> str:
    begin = chance.randint(0, len(text))
    return text[:begin] + text[begin + chance.choice((1, 2, 10, 100)) :]


def _insert(text: str, chance: random.Random) -> str:
    place = chance.randint(0, len(text))
    return text[:place] + chance.choice((*NUMBERS, *WORDS)) + text[place:]


def _change_letter(text: str, chance: random.Random) -> str:
    if not text:
        return chr(chance.randrange(0x250))
    place = chance.randrange(len(text))
    return text[:place] + chr(chance.choice((chance.randrange(0x80), chance.randrange(0xD800)))) + text[place + 1 :]


_KINDS: tuple[Callable[[str, random.Random], str], ...] = (
    _replace_token,
    _replace_token,
    _replace_number,
    _replace_number,
    _swap_lines,
    _repeat_or_drop_line,
    _cut,
    _drop,
    _insert,
    _change_letter,
)
