"""The schedule files of Perseus and Kareus: `freqs_pipeline_NNNNN.py` and `scheds_pipeline_NNNNN.py`.

Each holds one list literal with a list per stage, and comments. The number in the name is the solver's iteration; a
larger one is faster. An entry of a freqs file is ('forward', MHz), or a bare MHz in the SOSP'24 artifact; 0 leaves the
clock unset. An entry of a scheds file is ('forward', configuration, …), or, without recomputation, one pair of a
forward and a backward per microbatch. Files are parsed as literals and never run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wattune.core.errors import PlanError

FORMATS = ("perseus", "kareus", "perseus-sosp24")
MOST_CHARACTERS = 16_000_000
MOST_MHZ = 100_000
DEEPEST = 4
_WORD = re.compile(r"""[\[\]()]|[\s,]+|\d{1,9}(?!\w)|'[^'\\\n]*'|"[^"\\\n]*"|\#[^\n]*""")
_HINT = "a schedule file is one list with a list per stage, such as [[('forward', 1410), ('backward', 1200)]]"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One entry: the instruction's name where the file gives it, its clock, and its configurations."""

    name: str | None
    sm_mhz: int | None
    """None where the file leaves the clock unset."""
    configs: tuple[str, ...] = ()


Stages = tuple[tuple[Instruction, ...], ...]
"""The instructions of every stage."""

Configs = tuple[str, tuple[str, ...]]
"""The name of an instruction and its configurations."""


def parse_freqs(text: str, *, file: str) -> Stages:
    """Parse a freqs file."""
    return tuple(
        tuple(_clocked(entry, f"{file}, stage {number}, entry {place}") for place, entry in enumerate(stage))
        for number, stage in enumerate(_stages(text, file))
    )


def parse_scheds(text: str, *, file: str) -> tuple[tuple[Configs, ...], ...]:
    """Parse a scheds file; pairs of the form without recomputation become all forwards, then all backwards."""
    return tuple(_configured(stage, f"{file}, stage {number}") for number, stage in enumerate(_stages(text, file)))


def join(freqs: Stages, scheds: Sequence[Sequence[Configs]], *, file: str) -> Stages:
    """Add the configurations of the scheds file to the instructions of the freqs file of the same plan."""
    if [len(stage) for stage in freqs] != [len(stage) for stage in scheds]:
        raise PlanError(f"{file} is for another pipeline than its freqs file", hint="take both from the same folder")
    return tuple(
        _joined(stage, own, f"{file}, stage {number}")
        for number, (stage, own) in enumerate(zip(freqs, scheds, strict=True))
    )


def _joined(stage: Sequence[Instruction], own: Sequence[Configs], where: str) -> tuple[Instruction, ...]:
    """Each instruction with the next configurations of its name; a bare clock takes the name of the same place."""
    waiting: dict[str, list[tuple[str, ...]]] = {}
    for name, configs in own:
        waiting.setdefault(name, []).append(configs)
    joined = []
    for place, instruction in enumerate(stage):
        name = instruction.name or own[place][0]
        if not waiting.get(name):
            raise PlanError(f"{where}, entry {place}: there is no configuration left for {name!r}", hint=_HINT)
        joined.append(Instruction(name, instruction.sm_mhz, waiting[name].pop(0)))
    return tuple(joined)


def freqs_text(stages: Sequence[Sequence[Instruction]], comments: Sequence[str], *, names: bool = True) -> str:
    """Write a freqs file; the SOSP'24 artifact has no names."""
    rows = []
    for stage in stages:
        clocks = [instruction.sm_mhz or 0 for instruction in stage]
        if names:
            rows.append(repr([(instruction.name, mhz) for instruction, mhz in zip(stage, clocks, strict=True)]))
        else:
            rows.append(repr(clocks))
    return _file(rows, comments)


def scheds_text(stages: Sequence[Sequence[Instruction]], comments: Sequence[str]) -> str:
    """Write a scheds file, in the order of the freqs file."""
    rows = [repr([(instruction.name, *instruction.configs) for instruction in stage]) for stage in stages]
    return _file(rows, comments)


def _file(rows: Sequence[str], comments: Sequence[str]) -> str:
    return "[\n" + "".join(f"{row},\n" for row in rows) + "]\n" + "".join(f"# {comment}\n" for comment in comments)


def _stages(text: str, file: str) -> list[Sequence[Any]]:
    if len(text) > MOST_CHARACTERS:
        raise PlanError(f"{file} is longer than {MOST_CHARACTERS} characters", hint=_HINT)
    _check_words(text, file)
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        problem = str(error).partition("\n")[0][:80] or type(error).__name__
        raise PlanError(f"{file} is not a list literal: {problem}", hint=_HINT) from None
    if not isinstance(value, list | tuple) or not value:
        raise PlanError(f"{file} does not hold a list of stages", hint=_HINT)
    for number, stage in enumerate(value):
        if not isinstance(stage, list | tuple) or not stage:
            raise PlanError(f"{file}, stage {number} is not a list of instructions", hint=_HINT)
    return list(value)


def _check_words(text: str, file: str) -> None:
    """Refuse all but lists, tuples, whole numbers, plain texts and comments, nested a few levels deep.

    Python's parser can run out of stack on hostile text.
    """
    depth, place = 0, 0
    for word in _WORD.finditer(text):
        if word.start() != place:
            break
        place = word.end()
        depth += (word[0] in "[(") - (word[0] in "])")
        if depth > DEEPEST:
            raise PlanError(f"{file}, line {_line(text, place)}: lists nested more than {DEEPEST} deep", hint=_HINT)
    if place != len(text):
        rest = text[place : place + 20].partition("\n")[0]
        raise PlanError(f"{file}, line {_line(text, place)}: {rest!r} is no part of a list literal", hint=_HINT)


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _clocked(entry: Any, where: str) -> Instruction:
    match entry:
        case (str(name), clock):
            return Instruction(name.lower(), _mhz(clock, where))
        case _:
            return Instruction(None, _mhz(entry, where))


def _mhz(value: Any, where: str) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_MHZ:
        raise PlanError(f"{where}: {repr(value)[:40]} is not a clock in MHz", hint=_HINT)
    return value or None


def _configured(stage: Sequence[Any], where: str) -> tuple[Configs, ...]:
    if all(isinstance(entry, tuple | list) and len(entry) == 2 and not isinstance(entry[0], str) for entry in stage):
        pairs = [[_configs(part, f"{where}, entry {place}") for part in entry] for place, entry in enumerate(stage)]
        return (*(pair[0] for pair in pairs), *(pair[1] for pair in pairs))
    return tuple(_configs(entry, f"{where}, entry {place}") for place, entry in enumerate(stage))


def _configs(entry: Any, where: str) -> Configs:
    if not isinstance(entry, tuple | list) or not entry or not all(isinstance(part, str) for part in entry):
        raise PlanError(f"{where}: {repr(entry)[:40]} is not an instruction with its configurations", hint=_HINT)
    for config in entry[1:]:
        check_config(config, where=where)
    return entry[0].lower(), tuple(entry[1:])


_CONFIG = re.compile(r"((-?\d{1,9}-){2}|([A-Za-z0-9_]+-){2})\d{1,9}-\d{1,9}")


def check_config(text: str, *, where: str) -> None:
    """Refuse a text that is no configuration such as `rope_0-none-12-1024`, or `-1--1-16-1024` in older files."""
    if not _CONFIG.fullmatch(text):
        raise PlanError(
            f"{where}: {text[:40]!r} is not a configuration", hint="it is start-end-SMs-block: norm_0-none-12-1024"
        )
