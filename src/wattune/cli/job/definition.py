"""What a job is, from the options of a command and from how it was defined before."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wattune.core.errors import InputError
from wattune.core.job import Job

MAX_EPOCHS = 100
"""Zeus's own default (You et al., NSDI'23, `max_epochs`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the options say; None where they say nothing."""

    batch_sizes: tuple[int, ...] | None = None
    default_batch_size: int | None = None
    target: float | None = None
    higher_is_better: bool | None = None
    max_epochs: int | None = None
    objective: str | None = None


def parse_sizes(text: str) -> tuple[int, ...]:
    """The batch sizes of a list such as `16,32,64`; one line says what is wrong with another."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError(f"{text!r} is no list of batch sizes", hint="write whole numbers from 1, as 16,32,64")
    return tuple(sorted({int(part) for part in parts}))


def first_definition(name: str, wanted: Wanted) -> Job:
    """The job as its first run defines it; an error names the option that is missing."""
    if wanted.batch_sizes is None:
        raise _missing(name, "its batch sizes", "--batch-sizes 16,32,64")
    if wanted.target is None:
        raise _missing(name, "the metric to reach", "--target 0.75, with --lower-is-better where less is better")
    default = wanted.default_batch_size
    if default is None:
        if len(wanted.batch_sizes) > 1:
            raise _missing(name, "the batch size that is used today", f"--default {wanted.batch_sizes[-1]}")
        default = wanted.batch_sizes[0]
    return Job(
        name=name,
        batch_sizes=wanted.batch_sizes,
        default_batch_size=default,
        target=wanted.target,
        higher_is_better=wanted.higher_is_better is not False,
        max_epochs=wanted.max_epochs or MAX_EPOCHS,
        objective=wanted.objective or "cost:0.5",
    )


def redefined(known: Job, wanted: Wanted) -> Job:
    """The job as it was, but for what the options say; a default that is no longer listed has to be named anew."""
    said = {
        "batch_sizes": wanted.batch_sizes,
        "default_batch_size": wanted.default_batch_size,
        "target": wanted.target,
        "higher_is_better": wanted.higher_is_better,
        "max_epochs": wanted.max_epochs,
        "objective": wanted.objective,
    }
    job = replace(known, **{field: value for field, value in said.items() if value is not None})  # type: ignore[arg-type]
    return known if job == known else job


def changes(before: Job, after: Job) -> tuple[str, ...]:
    """One line for each thing that another definition of a job changes."""
    lines = []
    for field, title in _TITLES.items():
        old, new = getattr(before, field), getattr(after, field)
        if old != new:
            lines.append(f"{title}: {_shown(new)} instead of {_shown(old)}")
    if (before.target, before.higher_is_better) != (after.target, after.higher_is_better):
        lines.append("earlier runs had another target: they stay on record and are not learned from")
    return tuple(lines)


_TITLES = {
    "batch_sizes": "batch sizes",
    "default_batch_size": "default batch size",
    "target": "target",
    "higher_is_better": "higher is better",
    "max_epochs": "most epochs",
    "objective": "objective",
}


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _missing(name: str, what: str, option: str) -> InputError:
    return InputError(f"{name} is a new job and lacks {what}", hint=f"add {option}")
