"""Real power traces in a folder of public measurements, and what is known of them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from wattune.benchmarks.datasets.find import data_files, text_of
from wattune.benchmarks.period.cases import Case
from wattune.core.errors import InputError
from wattune.signals.period import Verdict
from wattune.signals.trace_text import busiest, parse_traces

TRUTHS = "truths.csv"
"""A file beside traces that says what is true of them: `file,verdict,period_s`, several rows for several levels."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a trace."""

    verdict: Verdict
    spans_s: dict[str, tuple[float, float]] = field(default_factory=dict)


# From batch size over printed images per second (pengfei-zou/PowerBound), from the program's own log
# (grantwilkins/training_profile), and from the edges that the load noted (JimZeyuYang/GPU_Power_Benchmark).
_KNOWN = {
    "odpp_titanxp_resnet50_b64_sm1430": Known(Verdict.PERIODIC, {"step": (0.2847, 0.2847)}),
    "odpp_titanxp_vgg19_b64_sm670": Known(Verdict.PERIODIC, {"step": (1.006, 1.006)}),
    "titanx2_gpt_save50_b": Known(Verdict.PERIODIC, {"step": (0.205, 0.225), "cycle": (13.4, 13.4)}),
    "squarewave50_A100": Known(Verdict.NOT_OBSERVABLE),
}


def real_cases(folder: Path) -> Iterator[Case]:
    """Every power trace in a folder, with its truth where that is known."""
    for file in data_files(folder):
        if file.suffix != ".csv" or file.name == TRUTHS:
            continue
        try:
            traces = parse_traces(text_of(file), file=file.name)
        except InputError:
            continue  # A table of another kind: other benches read it.
        known = _written(file) or _KNOWN.get(file.stem)
        yield Case(
            file=f"{file.parent.name}/{file.name}",
            kind="real",
            samples=traces[busiest(traces)],
            verdict=known.verdict if known else Verdict.PERIODIC,
            spans_s=known.spans_s if known else {},
            simulated=False,
        )


def _written(file: Path) -> Known | None:
    """What a file of truths beside the trace says of it."""
    truths = file.parent / TRUTHS
    if not truths.is_file():
        return None
    rows = [row for row in csv.DictReader(text_of(truths).splitlines()) if row.get("file") == file.name]
    if not rows:
        return None
    try:
        spans_s = {
            f"level {number}": (float(row["period_s"]), float(row["period_s"]))
            for number, row in enumerate(rows)
            if row.get("period_s")
        }
        return Known(Verdict(rows[0].get("verdict") or Verdict.PERIODIC), spans_s)
    except ValueError as error:
        raise InputError(f"{truths}: {error}", hint="its columns are file,verdict,period_s") from None
