"""What the command line of a program shows: whether it is Python that loads the hook, and its title."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence

_PYTHON = re.compile(r"(python|pypy)[0-9.]*(t|d)?$")
_ALONE = frozenset("EIS")
"""Options with which Python does not load it."""
_WITH_VALUE = frozenset("WX")


def refuses_hook(command: Sequence[str]) -> bool:
    """Return whether a command is Python with an option by which it does not load the hook."""
    words = _python_words(command)
    return bool(words) and _is_alone(words[1:])


def loads_hook(command: Sequence[str]) -> bool:
    """Return whether a command is Python that loads the hook; False where that is unknown, as for a shell script.

    A script counts by its first line, so torchrun and accelerate are Python. A script called python, as pyenv
    installs, counts as Python.
    """
    words = _python_words(command)
    return bool(words) and not _is_alone(words[1:])


_FIRST = re.compile(r"(?P<folder>/(?:[^\s'\"]*/)?)?(?P<python>(?:python|pypy)[0-9.]*[td]?(?=\s|$))?")


def command_title(command: str) -> str:
    """Return a command line for a title: `python train.py`, without the folder and the version of its interpreter."""
    first = _FIRST.match(command)
    assert first is not None  # it matches nothing at least
    python = "" if first["python"] is None else first["python"].rstrip("0123456789.td")
    return f"{python}{command[first.end() :]}"


def _python_words(command: Sequence[str]) -> list[str]:
    """Return the command with its interpreter first where that is Python; else nothing."""
    path = shutil.which(command[0]) or command[0]
    words = [path, *command[1:]]
    if not _PYTHON.match(os.path.basename(path)):
        words = [*_interpreter(path), *words]
    return words if _PYTHON.match(os.path.basename(words[0])) else []


def _interpreter(path: str) -> list[str]:
    """Return the words after `#!` in the first line of a file; none where it has none."""
    try:
        with open(path, "rb") as file:
            first = file.read(512).split(b"\n")[0]
        words = shlex.split(first[2:].decode()) if first.startswith(b"#!") else []
    except (OSError, ValueError):
        return []
    if words and os.path.basename(words[0]) == "env":
        return [word for word in words[1:] if word != "-S" and "=" not in word]
    return words


def _is_alone(arguments: Sequence[str]) -> bool:
    """Return whether the options of Python before its program have -E, -I or -S."""
    skip = False
    for argument in arguments:
        if skip:
            skip = False
            continue
        if not argument.startswith("-") or argument == "-":
            return False
        if argument.startswith("--"):
            continue
        for place, letter in enumerate(argument[1:], start=1):
            if letter in _ALONE:
                return True
            if letter in "mc":
                return False
            if letter in _WITH_VALUE:
                skip = place == len(argument) - 1
                break
    return False
