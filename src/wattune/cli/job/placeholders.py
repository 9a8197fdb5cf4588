"""What stands in braces in the command of a recurring job, and what takes its place for one run."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from wattune.core.errors import InputError

PLACEHOLDERS = {
    "batch_size": "the batch size over all GPUs",
    "local_batch_size": "the batch size of one GPU",
    "learning_rate": "the learning rate that goes with the batch size, by --lr and --lr-rule",
    "run_id": "the id of the run",
    "seed": "a number that differs from run to run: how many runs there were before",
}

_BRACED = re.compile(r"\{\{([a-z_]+)\}\}|\{([a-z_]+)\}")
"""{{name}} stands for {name} itself; braces around anything else, such as JSON, are left alone."""


def used(texts: Iterable[str]) -> frozenset[str]:
    """The placeholders in these texts; an error for one that there is not."""
    names = frozenset(match[2] for text in texts for match in _BRACED.finditer(text) if match[2])
    for name in sorted(names - PLACEHOLDERS.keys()):
        near = difflib.get_close_matches(name, PLACEHOLDERS, n=1)
        guess = f"did you mean {{{near[0]}}}? " if near else ""
        known = ", ".join(f"{{{known}}}" for known in PLACEHOLDERS)
        raise InputError(
            f"there is no placeholder {{{name}}}",
            hint=f"{guess}there are {known}; write {{{{{name}}}}} to pass {{{name}}} on as it is",
        )
    return names


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with each placeholder's value in its place."""
    return _BRACED.sub(lambda match: f"{{{match[1]}}}" if match[1] else values[match[2]], text)


def filled_all(texts: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """The texts with each placeholder's value in its place."""
    return tuple(filled(text, values) for text in texts)
