"""Output of `wattune kernels`: JSON documents, tables, streams and files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from rich.table import Table as ScreenTable

from wattune.cli.kernels.planning import KernelPlans
from wattune.cli.kernels.searching import SearchOptions
from wattune.cli.output import console, made_line, marked, print_line, trust_lines, write_text
from wattune.cli.pipeline.output import job_document, job_words, long_run_words, switching_words
from wattune.config import load_config
from wattune.core.measurement import Measurement, energy_percent, time_percent
from wattune.levels.overlap.baselines import TRIAL_S
from wattune.levels.overlap.simulated_stages import INSTRUCTIONS
from wattune.levels.overlap.space import choices
from wattune.levels.overlap.view.kernel_report import KernelReport, SearchedKernels
from wattune.levels.overlap.view.partitions_page import kernels_page
from wattune.levels.overlap.view.stream_timeline import text_streams
from wattune.levels.overlap.view.used_settings import UsedOption, choice_words, kind_words, used_options
from wattune.levels.pipeline.plan_file import plan_text
from wattune.levels.pipeline.planned import PlannedPipeline
from wattune.levels.pipeline.view.page import long_run_saving
from wattune.plans.stage_profile import stage_profile_text
from wattune.render.page import render_page
from wattune.render.quantity import changes, percent

MOST_OPTIONS = 3
"""Options of an instruction beside each other on the screen; files and JSON have all."""


def write_files(result: KernelPlans, files: Mapping[str, Path | None]) -> None:
    """Write those of the files `out`, `profile_csv` and `html` that have a path."""
    texts: dict[str, Callable[[], str]] = {
        "out": lambda: plan_text(result.planned),
        "profile_csv": lambda: stage_profile_text(result.profile),
        "html": lambda: page_text(result.report),
    }
    for name, text in texts.items():
        path = files.get(name)
        if path is not None:
            write_text(path, text())


def page_text(report: KernelReport) -> str:
    """Render the page."""
    made = made_line()
    return render_page(kernels_page(report, made=made, tariff=load_config().tariff))


def document(result: KernelPlans) -> dict[str, Any]:
    """Describe the search, the comparison and the chosen plan as one JSON document."""
    planned, model = result.planned, result.searched.model
    return {
        **marked(planned.source.simulated, planned.source.gpu),
        "model": model.name,
        "title": result.report.title,
        "gpus": model.layout.devices,
        "stage_layers": model.stage_layers,
        "nanobatches": model.nanobatches,
        "recompute": model.recompute,
        "schedule": planned.shape.schedule,
        "microbatches": planned.shape.microbatches,
        "blocking_power_w": planned.blocking_power_w,
        "blocking_power_source": result.blocking_power_source,
        **search_document(result.searched),
        "comparison": _comparison(result.report),
        **plan_document(planned),
    }


def search_document(searched: SearchedKernels) -> dict[str, Any]:
    """Describe what was measured of each partition, and what the composed plans are expected to lack."""
    left = searched.remaining
    return {
        "measured_by_ranks": searched.measured,
        "measured_on_gpus": searched.measured and not searched.simulated,
        "partitions": [
            {
                "name": own.partition.name,
                "settings": len(choices(own.partition, searched.gpu)),
                "measurements": len(own.history),
                "frontier": len(own.frontier),
            }
            for own in searched.partitions
        ],
        "calibrations": _calibrations(searched),
        "left_out_mhz": searched.left_out_mhz if searched.measured else None,
        "expected_epsilon": _known(left.epsilon) if left else None,
        "expected_missing_hypervolume": left.hypervolume_share if left else None,
        "measurements": searched.trials,
        "gpu_hours": searched.gpu_hours,
        "kareus_measurements": searched.kareus_trials,
        "kareus_gpu_hours": searched.kareus_gpu_hours,
    }


def _calibrations(searched: SearchedKernels) -> dict[str, Any]:
    found = searched.calibrations
    return {
        instruction: {"time": found[instruction].factor.time, "energy": found[instruction].factor.energy}
        if instruction in found
        else None
        for instruction in INSTRUCTIONS
    }


def plan_document(planned: PlannedPipeline) -> dict[str, Any]:
    """Describe the chosen plan and its settings."""
    cost, default = planned.plan.cost, planned.default.cost
    return {
        "baseline": planned.baseline,
        "job": job_document(planned),
        "default": _cost(default),
        "plans": len(planned.frontier),
        "chosen": planned.chosen,
        "saved_per_1000_gpu_hours": asdict(long_run_saving(planned, load_config().tariff)),
        "plan": {
            **_cost(cost),
            "time_percent": time_percent(cost, default),
            "energy_percent": energy_percent(cost, default),
        },
        "instructions": {
            kind: [_option(option) for option in options] for kind, options in used_options(planned.plan.choice).items()
        },
    }


def _option(option: UsedOption) -> dict[str, Any]:
    settings = {name: {"launch": own.launch, "comm_sms": own.comm_sms} for name, own in option.partitions.items()}
    return {"sm_mhz": option.choice.setting.sm_mhz, "runs": option.runs, "settings": settings}


def _cost(cost: Measurement) -> dict[str, float]:
    return {"time_s": cost.time_s, "energy_j": cost.energy_j}


def _comparison(report: KernelReport) -> dict[str, Any] | None:
    found = report.comparison
    if found is None:
        return None
    return {
        "megatron": _cost(found.default.cost),
        "perseus": _cost(found.perseus.fastest.cost),
        "wattune": _cost(found.ours.fastest.cost),
        "equal_time_energy_percent": found.equal_time_energy_percent,
        "equal_energy_time_percent": found.equal_energy_time_percent,
    }


def show_plan(result: KernelPlans, rule: SearchOptions) -> None:
    """Print the model, its partitions, the comparison and the chosen plan."""
    planned, model = result.planned, result.searched.model
    layers = "/".join(map(str, model.stage_layers))
    again = "activations recomputed" if model.recompute else "activations kept"
    print_line(f"{result.report.title} (simulated)")
    for line in trust_lines(True, planned.source.gpu):
        print_line(line)
    print_line(f"{layers} layers, {model.nanobatches} nanobatches, {again}; {model.layout.devices} GPUs")
    print_line(str(planned.shape))
    show_partitions(result.searched, rule)
    print_line("")
    console().print(_comparison_table(result.report))
    for line in _gain_words(result):
        print_line(line)


def show_partitions(searched: SearchedKernels, rule: SearchOptions) -> None:
    """Print a row per partition, those whose search the budget ended, and what all costs on real GPUs."""
    table = _table("partition", "settings", "measured", "frontier")
    for own in searched.partitions:
        counts = (len(choices(own.partition, searched.gpu)), len(own.history), len(own.frontier))
        table.add_row(own.partition.name, *map(str, counts))
    console().print(table)
    for line in _remaining_words(searched, rule):
        print_line(line)
    print_line(hours_words(searched))
    for line in _measured_words(searched):
        print_line(line)


def _measured_words(searched: SearchedKernels) -> list[str]:
    """Say by which factors composed passes are multiplied, and which clocks are left out."""
    if not searched.measured:
        return []
    factors = []
    for instruction in INSTRUCTIONS:
        own = searched.calibrations.get(instruction)
        words = "not calibrated"
        if own is not None:
            words = f"time ×{own.factor.time:.3f}, energy ×{own.factor.energy:.3f} ({own.passes} passes)"
        factors.append(f"Calibration of {instruction} passes: {words}.")
    return [*factors, *_left_out_words(searched)]


def _left_out_words(searched: SearchedKernels) -> list[str]:
    left = {name: clocks for name, clocks in searched.left_out_mhz.items() if clocks}
    return [
        f"Left out of {name} passes, not measured in every partition: {', '.join(map(str, clocks))} MHz."
        for name, clocks in left.items()
    ]


def _remaining_words(searched: SearchedKernels, rule: SearchOptions) -> list[str]:
    """Say what the search expects the composed plans to lack; nothing where it does not know."""
    left = searched.remaining
    if left is None or searched.complete:
        return []
    if _known(left.epsilon) is None:
        return ["Too little is measured to expect how far the plans are from the frontier."]
    lines = [
        f"Expected, not measured: plans within {100 * left.epsilon:.2f} % of the frontier of all settings,",
        f"{100 * left.hypervolume_share:.2f} % of its area missing.",
    ]
    if left.epsilon > rule.epsilon:
        lines.append(f"That is above {100 * rule.epsilon:g} %: --budget ended the search.")
    return lines


def _known(value: float) -> float | None:
    return value if isfinite(value) else None


def hours_words(searched: SearchedKernels) -> str:
    """Say what the measurements take on real GPUs, beside those of Kareus."""
    words = f"{searched.trials} {'settings, all computed' if searched.complete else 'measurements'}"
    if not searched.measured and not searched.complete:
        words += f": {searched.gpu_hours:.1f} GPU-hours at {TRIAL_S:g} s on real GPUs"
    if searched.kareus_gpu_hours is not None:
        words += f" (Kareus: {searched.kareus_trials}, {searched.kareus_gpu_hours:.1f})"
    return f"{words}."


def _comparison_table(report: KernelReport) -> ScreenTable:
    planned, found = report.planned, report.comparison
    default = planned.default.cost
    rows = [("default" if found is None else "Megatron", default)]
    if found is not None:
        rows.append(("Megatron + Perseus, fastest", found.perseus.fastest.cost))
    rows.append(("wattune, fastest", planned.frontier.fastest.cost))
    rows.append((f"wattune, chosen (plan {planned.chosen} of {len(planned.frontier)})", planned.plan.cost))
    table = _table("per iteration", "time", "energy", "Δ time", "Δ energy")
    for name, cost in rows:
        changes = ("", "")
        if cost is not default:
            changes = (percent(time_percent(cost, default)), percent(energy_percent(cost, default)))
        table.add_row(name, f"{cost.time_s:.3f} s", f"{cost.energy_j:.0f} J", *changes)
    return table


def _gain_words(result: KernelPlans) -> list[str]:
    planned, found = result.planned, result.report.comparison
    lines = []
    if found is None:
        lines.append("Whole microbatches are not measured, so there is no comparison with Megatron.")
    else:
        lines.append(
            f"Against Perseus: energy {percent(found.equal_time_energy_percent)} at equal time, "
            f"time {percent(found.equal_energy_time_percent)} at equal energy."
        )
    lines.append(long_run_words(planned, load_config().tariff))
    lines.append(job_words(planned))
    lines.append(f"A GPU that waits draws {planned.blocking_power_w:g} W: {result.blocking_power_source}.")
    free = "Switching is taken to be free; --switch-latency charges it."
    lines.append(free if planned.switching is None else switching_words(planned))
    return lines


def show_settings(report: KernelReport) -> None:
    """Print the settings of each kind of instruction in the chosen plan, and the streams of the partitions."""
    planned = report.planned
    cost, default = planned.plan.cost, planned.default.cost
    label = " (simulated)" if planned.source.simulated else ""
    print_line(f"{report.title}{label}")
    print_line(str(planned.shape))
    print_line(
        f"plan {planned.chosen} of {len(planned.frontier)}: {cost.time_s:.3f} s, {cost.energy_j:.0f} J "
        f"({changes(time_percent(cost, default), energy_percent(cost, default))})"
    )
    screen = console()
    for kind, options in used_options(planned.plan.choice).items():
        screen.print()
        screen.print(_settings_table(kind, options))
    if report.streams:
        screen.print()
        for line in text_streams(report.streams, width=screen.width):
            screen.print(line, no_wrap=True, crop=True)


def _settings_table(kind: str, options: tuple[UsedOption, ...]) -> ScreenTable:
    """Tabulate partitions down and options across."""
    shown = options[:MOST_OPTIONS]
    heads = [f"{option.choice.setting.sm_mhz} MHz ×{option.runs}" for option in shown]
    more = f" (+{len(options) - len(shown)})" if len(options) > len(shown) else ""
    table = _table(f"{kind_words(kind)}{more}", *heads)
    names = dict.fromkeys(name for option in shown for name in option.partitions)
    for name in names:
        cells = (option.partitions.get(name) for option in shown)
        table.add_row(name, *(choice_words(cell) if cell else "no nanobatches" for cell in cells))
    if not names:
        table.add_row("whole microbatches", *("no nanobatches" for _ in shown))
    return table


def _table(first: str, *others: str) -> ScreenTable:
    table = ScreenTable(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for head in others:
        table.add_column(head, justify="right", no_wrap=True)
    return table
