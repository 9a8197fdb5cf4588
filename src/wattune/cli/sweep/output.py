"""Output of a sweep: a table and a plot on the terminal, JSON, a CSV file, a report page, the store."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from wattune.cli.output import (
    console,
    made_line,
    marked,
    print_json,
    shown,
    stderr_console,
    trust_lines,
    write_text,
)
from wattune.config import Config
from wattune.control.progress_estimator import ONLY_OPTIMIZERS
from wattune.core.codec import to_json
from wattune.core.csv_input import SWEEP_COLUMNS, csv_text
from wattune.core.errors import InputError, StoreError
from wattune.core.setting import Setting
from wattune.core.tariff import Tariff
from wattune.physics.catalog import trust_of
from wattune.process.step_file import UNFOLLOWED, is_followed
from wattune.render.page import render_page
from wattune.render.quantity import footprint_words, quantity
from wattune.render.svg import standalone
from wattune.render.terminal_graph import Spot, scatter
from wattune.store.fallback import keep_run, new_run
from wattune.store.records import FullRun, RunGpu, TrialRecord
from wattune.sweeps.frontier_view import (
    FrontierRow,
    FrontierView,
    certain_percent,
    chart_rows,
    recommendation,
    recommended,
    sweep_chart,
    sweep_page,
    units,
)
from wattune.sweeps.result import Swept

_SIGNS, _REFERENCE_SIGN = "①②③④⑤⑥⑦⑧⑨", "▲"


def document(swept: Swept, tariff: Tariff, *, files: dict[str, Path | None]) -> dict[str, Any]:
    """Return the sweep as a JSON document; `files` are those that were written, by kind."""
    view, saved = swept.view, swept.saved(tariff)
    return {
        **marked(swept.spec.simulated, swept.spec.name),
        "device": swept.device,
        "gpu": swept.spec.label,
        "uuid": swept.spec.uuid,
        "workload": swept.workload,
        "knob": swept.knob,
        "per": swept.per,
        "counted_by": swept.counted_by,
        "start_up": None if swept.start_up is None else {"idle_s": swept.start_up.idle_s},
        "iterations": swept.iterations,
        "max_slowdown_percent": 100 * swept.slowdown,
        "reference": view.reference_name,
        "doubt": swept.doubt,
        "saved_per_1000_gpu_hours": None if saved is None else asdict(saved),
        "recommended": _recommended_document(swept),
        "trials": [_trial_document(row) for row in view.rows],
        **files,
    }


def _recommended_document(swept: Swept) -> dict[str, Any] | None:
    pick = recommended(swept.view)
    if pick is None:
        return None
    return {
        "setting": pick.trial.choice.argument,
        **_changes(pick),
        "certain_percent": certain_percent(swept.view, pick, slowdown=swept.slowdown),
        "hold": swept.hold,
    }


def _trial_document(row: FrontierRow[Setting]) -> dict[str, Any]:
    setting, cost = row.trial.choice, row.trial.cost
    return {
        **to_json(setting),
        **to_json(cost),
        "power_w": cost.power_w,
        **_changes(row),
        "on_frontier": row.on_frontier,
        "names": list(row.names),
    }


def _changes(row: FrontierRow[Setting]) -> dict[str, float | None]:
    return {
        "saving_percent": row.saving_percent,
        "saving_error_percent": row.saving_error_percent,
        "slowdown_percent": row.slowdown_percent,
        "slowdown_error_percent": row.slowdown_error_percent,
    }


def frontier_table(swept: Swept, *, width: int) -> Table:
    """Return the frontier and the reference, fastest first, with the signs that the plot uses; without powers where
    they do not fit."""
    view = swept.view
    signs = _signs(view)
    shown = sorted((row for row in view.rows if row.on_frontier or row.names), key=lambda row: row.trial.cost.time_s)
    cells = [(signs.get(row.trial.choice, ""), *_cells(row)) for row in shown]
    wide = [max(map(len, column)) for column in zip(_HEAD, *cells, strict=True)]
    longest_name = max(len(word) for row in cells for word in ("", *row[-1].split()))
    fits = sum(wide[:-1]) + _GAP * len(wide) + longest_name <= width
    columns = [column for column in range(len(_HEAD)) if fits or column != _POWER]
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, _GAP, 0, 0))
    for column in columns[:-1]:
        side: Literal["left", "right"] = "left" if column < 2 else "right"
        table.add_column(_HEAD[column], justify=side, no_wrap=True, min_width=wide[column])
    table.add_column(_HEAD[-1], overflow="fold")
    for row, texts in zip(shown, cells, strict=True):
        table.add_row(*(texts[column] for column in columns), style="bold" if row.names else None)
    return table


_GAP, _POWER = 2, 4
_HEAD = ("", "setting", "time", "energy", "power", "Δ time", "Δ energy", "")


def _cells(row: FrontierRow[Setting]) -> tuple[str, ...]:
    cost, choice = row.trial.cost, str(row.trial.choice)
    return (
        choice,
        quantity(cost.time_s, "s"),
        quantity(cost.energy_j, "J"),
        quantity(cost.power_w, "W"),
        row.time_change,
        row.energy_change,
        ", ".join(name for name in row.names if name != choice),
    )


def frontier_picture(swept: Swept, *, width: int, height: int) -> Text:
    """Return the sweep as a scatter plot."""
    view = swept.view
    rows = chart_rows(view)
    seconds, joules = units(rows)
    signs = _signs(view)
    spots = []
    for row in sorted(rows, key=lambda row: (bool(row.names), row.on_frontier)):
        style = "bold yellow" if row.names else "cyan" if row.on_frontier else "dim"
        if row.trial is view.reference:
            style = "bold dark_orange"
        sign = signs.get(row.trial.choice) or ("•" if row.on_frontier else "∘")
        spots.append(Spot(row.trial.cost.time_s * seconds.factor, row.trial.cost.energy_j * joules.factor, sign, style))
    return Text("\n", no_wrap=True).join(
        scatter(spots, width=width, height=height, x_unit=seconds.symbol, y_unit=joules.symbol)
    )


def _signs(view: FrontierView[Setting]) -> dict[Setting, str]:
    """Return the sign of each named setting: one for the reference, numbers for the others."""
    others = [row.trial.choice for row in view.picks if row.trial is not view.reference]
    return {view.reference.choice: _REFERENCE_SIGN, **dict(zip(others, _SIGNS, strict=False))}


def sweep_csv(swept: Swept) -> str:
    """Return the sweep as CSV, one row per setting; a field is empty where the driver decides."""
    rows: list[tuple[object, ...]] = [SWEEP_COLUMNS]
    for trial in swept.settings:
        knobs = (trial.choice.sm_mhz, trial.choice.mem_mhz, trial.choice.power_limit_w)
        shown = ["" if knob is None else f"{knob:g}" for knob in knobs]
        rows.append((swept.workload, *shown, trial.cost.time_s, trial.cost.energy_j))
    return csv_text(rows)


def sweep_report(swept: Swept, tariff: Tariff, *, suffix: str = ".html") -> str:
    """Return the report page, or for `.svg` its first picture."""
    saved = swept.saved(tariff)
    title = f"{swept.title} on {swept.spec.name}"
    if suffix == ".svg":
        spec, per = swept.spec, swept.per
        return standalone(
            sweep_chart(swept.view, title=title, simulated=spec.simulated, per=per, slowdown=swept.slowdown)
        )
    page = sweep_page(
        swept.view,
        title=title,
        simulated=swept.spec.simulated,
        trust=trust_of(swept.spec.simulated, swept.spec.name),
        per=swept.per,
        slowdown=swept.slowdown,
        how=_how(swept),
        made=made_line(),
        saved=None if saved is None else footprint_words(saved),
    )
    return render_page(page)


def _how(swept: Swept) -> tuple[str, ...]:
    unit = "iteration" if swept.per == "iteration" else "run"
    amount = f"{swept.iterations} {unit}s" if swept.iterations > 1 else f"one {unit}"
    paragraphs = [
        f"At each setting, the driver's default first, the GPU did {amount} of {swept.title}. "
        + (
            f"All figures are per {unit}, by its energy counter before and after."
            if swept.counted_by is None
            else f"All figures are per step, from the moment of the first to that of the last step that was counted "
            f"({swept.counted_by}); what lies before and after, and pauses between steps, is left out."
        ),
        "A trial is on the frontier when no other trial is both faster and cheaper. The knee is the point of the "
        "frontier furthest below the straight line from its fastest to its cheapest point.",
    ]
    if len(swept.history) > len(swept.settings):
        paragraphs.append(
            "Settings near the slowdown limit, and the driver's default, were measured again: their figures are means, "
            "and the errors of times follow from how far measurements of one setting scatter."
        )
    if swept.start_up_words is not None:
        paragraphs.append(f"{swept.start_up_words}.")
    if swept.hold is not None:
        paragraphs.append(f"To hold the recommended setting: {swept.hold}")
    return tuple(paragraphs)


def keep_partial(swept: Swept, config: Config) -> None:
    """Store what was measured before a failure; a store that fails too is only remarked on."""
    try:
        keep_sweep(swept, config)
    except StoreError as error:
        stderr_console().print(f"remark: {error.message}", soft_wrap=True, markup=False)


def keep_sweep(swept: Swept, config: Config) -> None:
    """Write the sweep and its trials to the store."""
    spec = swept.spec
    details = {
        "device": swept.device,
        "knob": swept.knob,
        "per": swept.per,
        "counted_by": swept.counted_by,
        "iterations": swept.iterations,
        "doubt": swept.doubt,
    }
    run = new_run(
        "sweep", swept.workload, started_at=swept.started_at, gpus=(RunGpu.of(spec, swept.spent),), details=details
    )
    trials = tuple(
        TrialRecord.of(trial, workload=swept.workload, gpu=spec.name, simulated=spec.simulated)
        for trial in swept.history
    )
    keep_run(FullRun(run, trials), store_url=config.store_url, state_dir=config.state_dir)


def deliver(swept: Swept, tariff: Tariff, *, csv_file: Path | None, report: Path | None, as_json: bool) -> None:
    """Write the files and show the frontier, which is shown even where a file cannot be written."""
    files, failure = _write_files(swept, tariff, {"csv": csv_file, "report": report})
    if as_json:
        print_json(document(swept, tariff, files=files))
    else:
        show(swept, tariff, files)
    if failure is not None:
        raise failure


def _write_files(
    swept: Swept, tariff: Tariff, wanted: dict[str, Path | None]
) -> tuple[dict[str, Path | None], InputError | None]:
    """Return the files that were written, by kind, and the first failure to write one."""
    written: dict[str, Path | None] = dict.fromkeys(wanted)
    failure = None
    for kind, path in wanted.items():
        if path is not None:
            suffix = path.suffix.lower()
            text = sweep_csv(swept) if kind == "csv" else sweep_report(swept, tariff, suffix=suffix)
            try:
                write_text(path, text)
                written[kind] = path
            except InputError as error:
                failure = failure or error
    return written, failure


def _no_recommendation(doubt: str, *, simulated: bool) -> str:
    """Return why nothing is recommended and, where that is not known yet, what to do about it."""
    if doubt in (UNFOLLOWED, ONLY_OPTIMIZERS):
        return f"nothing is recommended: {doubt}"
    words = f"nothing is recommended: the command does not follow the clock of the GPU: {doubt}"
    if not simulated or is_followed(os.environ):
        return words
    return f"{words}\nhint: with simulated GPUs, `wattune simulate --follow` makes a PyTorch program follow it"


def show(swept: Swept, tariff: Tariff, files: dict[str, Path | None]) -> None:
    """Print the frontier for people."""
    out = console()
    out.print(Text.assemble((swept.title, "bold"), " on ", (swept.spec.label, "bold"), f", per {swept.per}:"))
    for line in trust_lines(swept.spec.simulated, swept.spec.name):
        out.print(line, markup=False, soft_wrap=True, style="dim")
    out.print(frontier_table(swept, width=out.width))
    out.print()
    out.print(frontier_picture(swept, width=min(out.width, 100), height=16))
    label = " (simulated)" if swept.spec.simulated else ""
    marks = f"{_REFERENCE_SIGN} {swept.view.reference_name}, ① ② see table, • frontier, ∘ beaten"
    out.print(f"[dim]energy over time per {swept.per}{label}: {marks}[/]")
    if swept.doubt is not None:
        out.print(_no_recommendation(swept.doubt, simulated=swept.spec.simulated), soft_wrap=True, markup=False)
    else:
        said = recommendation(swept.view, per=swept.per, slowdown=swept.slowdown)
        out.print(f"{said[:-1]}{label}." if label else said, soft_wrap=True, markup=False)
    if swept.start_up_words is not None:
        out.print(f"{swept.start_up_words}.", soft_wrap=True, markup=False)
    saved = swept.saved(tariff)
    if saved is not None:
        out.print(f"That is {footprint_words(saved)} per 1,000 GPU-hours{label}.", soft_wrap=True, markup=False)
    if swept.hold is not None:
        out.print(shown(f"hold it: {swept.hold}"), soft_wrap=True, markup=False, style="bold")
    for kind, path in files.items():
        if path is not None:
            out.print(f"{kind} written to {path}", soft_wrap=True, markup=False)
