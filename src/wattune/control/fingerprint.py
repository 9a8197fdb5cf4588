"""What tells one program from another in the history: its command line without what differs from run to run."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath

_VOLATILE = re.compile(
    r"(seed|port|rank|host|addr|run|id|name|tag|out|log|dir|save|path|resume|ckpt|checkpoint|wandb|tensorboard)",
    re.IGNORECASE,
)
"""Options whose value says nothing of the work: where it writes to, what it is called, its random numbers."""
_UNIQUE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-.*|[0-9a-f]{16,}|\d{4}-\d\d-\d\d.*|\d{8,}", re.IGNORECASE)
"""Identifiers, hashes, dates and times."""
_INTERPRETER = re.compile(r"(python|pypy)[0-9.]*(\.exe)?")
_ANY = "*"


def fingerprint(command_line: str) -> str:
    """The command line as it is for every run of the same program on the same kind of work."""
    try:
        words = shlex.split(command_line)
    except ValueError:
        words = command_line.split()
    kept: list[str] = []
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        kept.append(_plain(word, before))
    return " ".join(kept)


def _plain(word: str, before: str) -> str:
    name, equals, value = word.partition("=")
    if word.startswith("-") and equals:
        return f"{name}={_ANY if _VOLATILE.search(name) else _value(value)}"
    if word.startswith("-"):
        return word
    if before.startswith("--") and "=" not in before and _VOLATILE.search(before):
        return _ANY
    return _value(word)


def _value(word: str) -> str:
    if _UNIQUE.fullmatch(word):
        return _ANY
    last = PurePath(word).name if "/" in word and not re.search(r"\s", word) else word
    return "python" if _INTERPRETER.fullmatch(last) else last
