"""Recurring jobs as tables for the terminal and as JSON documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wattune.cli.history import SHOWN_ID, one_line
from wattune.cli.output import marked, trust_lines
from wattune.core.codec import to_json
from wattune.core.job import Job, JobGpu, JobRun, Outcome
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.core.tariff import Footprint, Tariff
from wattune.levels.job.view.charts import epochs_lines
from wattune.levels.job.view.cost_map import map_lines
from wattune.levels.job.view.view_model import ENDS, JobView, comparison_words, gpu_label, job_map, runs_footprint
from wattune.render.quantity import UNKNOWN, counted, duration, footprint_words, number, quantity

if TYPE_CHECKING:
    from wattune.store.job_records import JobSummary, RecordedRun


_ROOMY, _LEAST_WHY = 110, 30
"""Width from which the reason of a run is shown, and its least width."""


def job_table(summaries: Sequence[JobSummary], footprints: Sequence[Footprint]) -> Table:
    """Return a table with a row per job; its energy also as kWh and, where they are known, money and CO₂."""
    table = _table("job", "batch sizes", "target", "objective", numbers=("runs", "running", "energy"))
    for summary, footprint in zip(summaries, footprints, strict=True):
        job = summary.job
        cells = (job.name, _sizes(job), _target(job), job.objective, str(summary.runs), str(summary.running))
        words = footprint_words(footprint).replace(", ", "\n") if footprint.energy_kwh else ""
        energy = f"{_energy(summary)}\n{words}".rstrip()
        table.add_row(*(Text(one_line(cell)) for cell in cells), Text(energy))
    return table


def job_line(job: Job) -> str:
    """Describe a job in one line."""
    return (
        f"{one_line(job.name)}: batch sizes {_sizes(job)}, target {_target(job)} within "
        f"{counted(job.max_epochs, 'epoch')}, objective {job.objective}"
    )


def print_job(out: Console, job: Job, found: Sequence[JobView], records: Sequence[RecordedRun], tariff: Tariff) -> None:
    """Print all that is known of a job."""
    _say(out, job_line(job))
    if not found:
        _say(out, "no runs yet")
    for one in found:
        out.print()
        out.print(Text(one_line(gpu_label(one.gpu)), style="bold"))
        for words in trust_lines(one.gpu.simulated, one.gpu.name):
            _say(out, words)
        out.print(size_table(one))
        out.print()
        for lines in (epochs_lines(one, width=out.width), map_lines(job_map(one), width=out.width)):
            for line in lines:
                out.print(line, no_wrap=True)
            out.print()
        for text in (*account_lines(one, tariff), *_next_line(one)):
            _say(out, text)
    if records:
        out.print()
        out.print(run_table(records, width=out.width))


def _next_line(found: JobView) -> tuple[str, ...]:
    proposal = found.proposal
    if proposal is None:
        return (f"next on {gpu_label(found.gpu)}: no batch size is left to try",)
    held = "" if found.setting is None else f" at {found.setting}"
    return (f"next on {gpu_label(found.gpu)}: batch size {proposal.batch_size}{held} – {one_line(proposal.why)}",)


def _say(out: Console, text: str) -> None:
    out.print(text, markup=False, soft_wrap=True)


def size_table(view: JobView) -> Table:
    """Return a table with a row per batch size."""
    table = _table("batch size", "", "setting", numbers=("runs", "epochs", "energy", "time"))
    for size in view.sizes:
        remarks = [size.state]
        remarks += ["default"] * (size.batch_size == view.job.default_batch_size)
        remarks += ["next"] * (size.batch_size == view.next_size)
        remarks += ["no longer listed"] * (size.batch_size not in view.job.batch_sizes)
        tries = f"{size.reached}/{size.runs}" if size.runs else "0"
        cells = (str(size.batch_size), ", ".join(remarks), _setting(size.setting), tries)
        figures = (number(size.epochs), quantity(size.energy_j, "J"), duration(size.time_s))
        table.add_row(*(Text(cell) for cell in (*cells, *figures)))
    return table


def account_lines(view: JobView, tariff: Tariff) -> tuple[str, ...]:
    """Describe the cost on one GPU model, and the savings."""
    label = gpu_label(view.gpu)
    if not view.here:
        return (f"no runs yet on {label}",)
    lines = [
        f"{counted(len(view.here), 'run')} on {label}, {counted(view.recurrences, 'recurrence')} that reached the "
        f"target: {_cost(view.spent)} ({footprint_words(view.footprint(tariff))})",
        f"of that {_cost(view.profiling)} for profiling, and {_cost(view.exploring)} for trials",
    ]
    lines.append(comparison_words(view))
    lines.append(_even(view))
    return tuple(line for line in lines if line)


def run_table(records: Sequence[RecordedRun], *, width: int) -> Table:
    """Return a table with a row per run, newest first, with its reason where there is room."""
    table = _table("run", "when", "outcome", "setting", numbers=("batch", "epochs", "energy", "time"))
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    roomy = width >= _ROOMY
    if roomy:
        table.add_column("why", no_wrap=True, overflow="ellipsis", max_width=width - _ROOMY + _LEAST_WHY)
    for record in records:
        run = record.run
        when = "" if run.submitted_at is None else run.submitted_at.astimezone().strftime("%m-%d %H:%M")
        outcome = run.outcome.value.replace("_", " ") + ("" if record.comparable else ", other target")
        cells = (run.id[:SHOWN_ID], when, outcome, _setting(run.setting))
        cost = run.cost
        figures = (
            str(run.batch_size),
            str(run.epochs),
            UNKNOWN if cost is None else quantity(cost.energy_j, "J"),
            UNKNOWN if cost is None else duration(cost.time_s),
        )
        table.add_row(*(Text(one_line(cell)) for cell in (*cells, *figures, *([run.why] if roomy else []))))
    return table


def end_line(run: JobRun, why: str, tariff: Tariff) -> str:
    """Describe in one line how a run ended and what it cost."""
    ended = why if run.outcome is Outcome.REACHED else ENDS[run.outcome] + (f" ({why})" if why else "")
    parts = [f"run {run.id[:SHOWN_ID]}: {ended}"]
    if run.cost is not None:
        label = " (simulated)" if run.gpu.simulated else ""
        held = "" if run.setting is None else f" at {run.setting}"
        parts.append(f"{_cost(run.cost)}{label}{held}, {footprint_words(runs_footprint((run,), tariff))}")
    if run.profiling is not None and run.profiling.energy_j:
        parts.append(f"{_cost(run.profiling)} of it for profiling")
    return one_line("; ".join(parts))


def _even(view: JobView) -> str:
    match view.break_even:
        case None:
            return ""
        case 0:
            return "the savings have paid for learning"
        case more:
            return f"the savings will have paid for learning after {counted(more, 'more recurrence')}"


def _energy(summary: JobSummary) -> str:
    parts = []
    if summary.energy_j is not None:
        parts.append(quantity(summary.energy_j, "J"))
    if summary.simulated_energy_j is not None:
        parts.append(f"{quantity(summary.simulated_energy_j, 'J')} simulated")
    return " + ".join(parts) or UNKNOWN


def _cost(cost: Measurement | None) -> str:
    return UNKNOWN if cost is None else f"{quantity(cost.energy_j, 'J')} in {duration(cost.time_s)}"


def _setting(setting: Setting | None) -> str:
    return UNKNOWN if setting is None else str(setting)


def _sizes(job: Job) -> str:
    return ",".join(map(str, job.batch_sizes))


def _target(job: Job) -> str:
    return f"{'≥' if job.higher_is_better else '≤'} {job.target:g}"


def _table(*heads: str, numbers: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, overflow="fold")
    for head in numbers:
        table.add_column(head, justify="right", no_wrap=True)
    return table


Document = dict[str, Any]

_OVERVIEW_FIELDS = ("recurrences", "break_even")
_OVERVIEW_COSTS = ("spent", "profiling", "exploring", "default_run", "best_run")
_SIZE_FIELDS = ("batch_size", "state", "runs", "reached", "failed", "epochs", "energy_j", "time_s")
_RECORD_FIELDS = ("definition", "comparable", "replaces", "lease_until", "ended_at", "host", "pid")
_SUMMARY_FIELDS = (
    "simulated",
    "definition",
    "defined_at",
    "recurrences",
    "runs",
    "running",
    "last_run_at",
    "energy_j",
    "time_s",
    "simulated_energy_j",
    "simulated_time_s",
)


def summary_document(summary: JobSummary, footprint: Footprint) -> Document:
    """Describe a job and its totals."""
    return {**to_json(summary.job), **_picked(summary, _SUMMARY_FIELDS), **asdict(footprint)}


def run_document(run: JobRun) -> Document:
    """Describe one run."""
    document: Document = to_json(run) | {"gpu": gpu_document(run.gpu)}
    del document["ended"]
    costs = {"cost": cost_document(run.cost), "profiling": cost_document(run.profiling)}
    return {**document, "epochs": run.epochs, **costs}


def gpu_document(gpu: JobGpu) -> Document:
    """Describe the GPUs of a job."""
    return {"name": gpu.name, "simulated": gpu.simulated, "max_power_w": gpu.max_power_w, "count": gpu.count}


def record_document(record: RecordedRun) -> Document:
    """Describe one run and what the store adds to it."""
    return {**run_document(record.run), **_picked(record, _RECORD_FIELDS)}


def cost_document(cost: Measurement | None) -> Document | None:
    """Return seconds and joules without their errors."""
    return None if cost is None else {"time_s": cost.time_s, "energy_j": cost.energy_j}


def comparison_document(view: JobView) -> Document:
    """Describe what was saved, as a JSON document; null where it is unknown, with the reason."""
    energy, time, cost = view.energy_share, view.time_share, view.objective_share
    found = view.comparison
    is_unknown = isinstance(found, str)
    return {
        "compared_recurrences": 0 if isinstance(found, str) else found.recurrences,
        "compared_unit": None if isinstance(found, str) else found.unit,
        "compared_spent": None if isinstance(found, str) else to_json(found.spent),
        "compared_default": None if isinstance(found, str) else to_json(found.default),
        "unknown_because": found if is_unknown else None,
        "saving_percent": None if cost is None else -cost.percent,
        "saving_error_percent": None if cost is None else cost.error_percent,
        "energy_saving_percent": None if energy is None else -energy.percent,
        "energy_saving_error_percent": None if energy is None else energy.error_percent,
        "slowdown_percent": None if time is None else time.percent,
        "slowdown_error_percent": None if time is None else time.error_percent,
    }


def overview_document(view: JobView, tariff: Tariff) -> Document:
    """Describe a job on one GPU model: its runs and their cost, the predicted epochs, and what comes next."""
    return {
        "gpu": gpu_document(view.gpu),
        "runs": len(view.here),
        **_picked(view, _OVERVIEW_FIELDS),
        **comparison_document(view),
        **{name: cost_document(getattr(view, name)) for name in _OVERVIEW_COSTS},
        "spent_footprint": asdict(view.footprint(tariff)),
        "sizes": [{**_picked(size, _SIZE_FIELDS), "setting": to_json(size.setting)} for size in view.sizes],
        "law": to_json(view.epochs),
        "next": None if view.proposal is None else {**to_json(view.proposal), "setting": to_json(view.setting)},
    }


def simulated_fields(runs: Sequence[JobRun]) -> Document:
    """Return `simulated`, true where any figure comes from a simulated GPU, and `trust` of the one judged least."""
    names = dict.fromkeys(run.gpu.name for run in runs if run.gpu.simulated)
    return marked(bool(names), *names)


def _picked(value: object, names: Sequence[str]) -> Document:
    return {name: to_json(getattr(value, name)) for name in names}
