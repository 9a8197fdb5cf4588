"""`wattune bench layers`: all its parts, in one outcome.

thesis      strategies beside the findings of the Chalmers thesis
language    free switching in a language model beside published figures
chain       the time to plan a long chain
transfer    plans from few measurements
hooks       overhead of playing a plan on a PyTorch program
kernels     real kernels predicted at pairs of clocks that were not measured, with a file of them
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from wattune.core.errors import InputError
from wattune_bench.layers.kernels import bench_kernels
from wattune_bench.layers.switching import chain_goal, chain_rows, language_rows
from wattune_bench.layers.thesis import cases, thesis_goals, thesis_rows
from wattune_bench.layers.transfer import transfer_goals, transfer_rows
from wattune_bench.result import Bench, check_sections, joined, part

SECTIONS = ("thesis", "language", "chain", "transfer", "hooks", "kernels")

_LANGUAGE_NOTE = (
    "Published for GPT-3 with free switching: 14.6 % less energy at 0.6 % slowdown per kernel, 2 % per pass (arXiv "
    "2601.08539). Ours are lower per kernel: in our description of GPT-3 large matrix products, which the core clock "
    "limits, take nearly all of the time, and data-centre GPUs have one memory clock."
)


def bench_layers(
    *,
    kernels: Path | None = None,
    sections: tuple[str, ...] = (),
    seeds: int = 10,
    processes: int = 2,
    on_step: Callable[[str, int, int], None],
) -> Bench:
    """Run the sections named, or all of them; that of kernels needs a file."""
    check_sections(sections, SECTIONS)
    if "kernels" in sections and kernels is None:
        raise InputError("the section kernels needs a file of kernels", hint="add --kernels FILE.csv")
    runs: dict[str, Callable[[], Bench]] = {
        "thesis": lambda: _thesis(processes, on_step),
        "language": lambda: part(language_rows(), notes=(_LANGUAGE_NOTE,)),
        "chain": _chain,
        "transfer": _transfer,
        "hooks": _hooks,
        "kernels": lambda: part() if kernels is None else bench_kernels(kernels, seeds=seeds),
    }
    found = []
    for section in sections or SECTIONS:
        on_step(section, 0, 1)
        found.append(runs[section]())
    return joined("layers", found)


def _thesis(processes: int, on_step: Callable[[str, int, int], None]) -> Bench:
    rows = thesis_rows(processes, lambda done: on_step("thesis", done, len(cases())))
    return part(rows, thesis_goals(rows))


def _chain() -> Bench:
    rows = chain_rows()
    return part(rows, (chain_goal(rows),))


def _transfer() -> Bench:
    rows = transfer_rows()
    return part(rows, transfer_goals(rows))


def _hooks() -> Bench:
    if find_spec("torch") is None:
        return part(notes=("hooks: not measured, since PyTorch is not installed (pip install 'wattune[torch]')",))
    from wattune_bench.layers.hooks import bench_hooks

    return bench_hooks()
