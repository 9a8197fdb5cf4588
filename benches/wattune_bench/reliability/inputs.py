"""Mutated inputs: every parser of outside text meets thousands of damaged ones, and each gets one clear error."""

from __future__ import annotations

import random
import signal
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from wattune.core.errors import WattuneError
from wattune_bench.reliability.mutation import mutated
from wattune_bench.reliability.parsers import Parser, all_parsers
from wattune_bench.result import Bench, at_least, at_most, part

INPUTS = 10_000
SEED = 14
LONGEST_S = 1.0
_GIVEN_UP_S = 20.0
"""CPU time after which a parser that does not end is given up."""

_NOTE = (
    "Inputs: each text is a valid one with one to four mutations (tokens, numbers, lines, letters, ends). A traceback "
    "is any error that is not one of wattune's own; warnings count too. A time is the CPU time of one parse."
)


class Endless(Exception):
    """A parser did not end in its time."""


@dataclass(frozen=True, slots=True)
class ParserFigures:
    """What a parser did with its inputs."""

    parser: str
    accepted: int
    refused: int
    tracebacks: Counter[str]
    longest_s: float

    @property
    def inputs(self) -> int:
        return self.accepted + self.refused + self.tracebacks.total()


def input_rows(
    *,
    inputs: int = INPUTS,
    seed: int = SEED,
    names: Sequence[str] | None = None,
    on_parser: Callable[[str], None] | None = None,
) -> Bench:
    """Feed every parser, or those of these names, with mutated inputs."""
    found = []
    with tempfile.TemporaryDirectory(prefix="wattune-inputs-") as folder:
        for parser in all_parsers(Path(folder)):
            if names is None or parser.name in names:
                if on_parser is not None:
                    on_parser(parser.name)
                found.append(attacked(parser, inputs=inputs, seed=seed))
    rows = [
        {
            "section": "inputs",
            "parser": one.parser,
            "inputs": one.inputs,
            "accepted": one.accepted,
            "refused": one.refused,
            "tracebacks": one.tracebacks.total(),
            "longest_ms": 1e3 * one.longest_s,
            "example": one.tracebacks.most_common(1)[0][0] if one.tracebacks else None,
        }
        for one in found
    ]
    goals = (
        at_least("mutated inputs per parser", min(one.inputs for one in found), INPUTS),
        at_most("tracebacks of parsers", sum(one.tracebacks.total() for one in found), 0),
        at_most("longest parse of a mutated input", max(one.longest_s for one in found), LONGEST_S, unit=" s"),
    )
    return part(rows, goals, (_NOTE,))


def attacked(parser: Parser, *, inputs: int, seed: int) -> ParserFigures:
    """Feed one parser with mutations of its examples, and with the examples themselves, which it must accept."""
    chance = random.Random(f"{seed} {parser.name}")
    outcomes: Counter[str] = Counter()
    tracebacks: Counter[str] = Counter()
    longest_s = 0.0
    texts = (*parser.examples, *(mutated(chance.choice(parser.examples), chance) for _ in range(inputs)))
    for number, text in enumerate(texts):
        start_s = time.thread_time()
        problem = _outcome(parser, text)
        longest_s = max(longest_s, time.thread_time() - start_s)
        if number < len(parser.examples):
            if problem is not None:
                tracebacks[f"a valid example is refused: {problem}"] += 1
        elif problem is None or problem == _REFUSED:
            outcomes["accepted" if problem is None else "refused"] += 1
        else:
            tracebacks[problem] += 1
    return ParserFigures(parser.name, outcomes["accepted"], outcomes["refused"], tracebacks, longest_s)


_REFUSED = "refused"


def _outcome(parser: Parser, text: str) -> str | None:
    """Return None where a text is accepted, "refused", or where and how the parser failed."""
    try:
        with _limited(), warnings.catch_warnings():
            warnings.simplefilter("error")
            parser.parse(text)
    except WattuneError as error:
        return _REFUSED if error.hint and "\n" not in error.message else f"an error of several lines: {error.message!r}"
    except parser.refuses:
        return _REFUSED
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "wattune" in frame.filename and "reliability" not in frame.filename]
        place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
        return f"{place}: {type(error).__name__}: {str(error)[:80]}"
    return None


@contextmanager
def _limited() -> Iterator[None]:
    """Raise Endless in a block that takes too much CPU time, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise Endless

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, _GIVEN_UP_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
