"""`wattune sweep`: measure a workload at many settings and show the frontier."""

from __future__ import annotations

from pathlib import Path

import click

from wattune.cli.child import check_command, program_options
from wattune.cli.gpus import require_gpu_option
from wattune.cli.output import FILE, check_report, check_writable, json_option, remark
from wattune.cli.step_options import step_options
from wattune.config import Config, load_config
from wattune.core.errors import InputError
from wattune.sweeps.settings import Knob


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--device", "devices", multiple=True, help="The GPU: auto, nvml:0, sim:a100, table:FILE.csv …")
@click.option("--workload", help="The workload of a simulated GPU: resnet50, resnet50:128 (batch size), bert-base …")
@click.option(
    "--knob",
    type=click.Choice([knob.value for knob in Knob]),
    default=Knob.SM_CLOCK.value,
    show_default=True,
    help="The setting to vary.",
)
@click.option(
    "--points",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="Most settings to try, besides the driver's default.",
)
@click.option(
    "--max-slowdown", metavar="SHARE", default="5%", show_default=True, help="How much longer the work may take."
)
@click.option("--even", is_flag=True, help="Space the settings evenly over the whole range.")
@click.option("--setting", "named", multiple=True, metavar="SETTING", help="Try only these: 1200MHz … (repeatable).")
@click.option("--iterations", type=click.IntRange(min=1), help="Iterations, or runs of COMMAND, at each setting.")
@click.option("--csv", "csv_file", type=FILE, help="Write the trials as CSV.")
@click.option("--report", type=FILE, help="Write a report: FILE.html, or its first picture, FILE.svg.")
@step_options
@require_gpu_option
@program_options
@json_option
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND]")
def command(
    devices: tuple[str, ...],
    workload: str | None,
    knob: str,
    points: int,
    max_slowdown: str,
    even: bool,
    named: tuple[str, ...],
    iterations: int | None,
    csv_file: Path | None,
    report: Path | None,
    step_pattern: str | None,
    no_inject: bool,
    grace_s: float,
    as_json: bool,
    command_line: tuple[str, ...],
) -> None:
    """Measure a workload at many settings and print its time-energy frontier.

    A simulated GPU trains the named workload. On a real GPU the workload is COMMAND, which runs from start to end at
    each setting; its output goes to standard error. Where its steps are counted, as in `wattune run`, settings are
    compared by its steps, without start-up and end; else by whole runs. The driver's default is always tried first,
    then a few settings over the range, then more where --max-slowdown cuts the frontier. It ends with the setting to
    use and the line that holds it. The GPU's settings are restored at the end.
    """
    from wattune.cli.counted_program import counted_command
    from wattune.cli.sweep.output import deliver, keep_partial, keep_sweep
    from wattune.cli.sweep.work import make_sweep
    from wattune.core.setting import parse_setting
    from wattune.sweeps.settings import WantedSettings

    if even and named:
        raise click.UsageError("--even and --setting cannot be used together")
    config = load_config()
    wanted = WantedSettings(
        knob=Knob(knob),
        points=points,
        slowdown=_slowdown(max_slowdown),
        even=even,
        settings=tuple(map(parse_setting, named)),
    )
    tariff = config.tariff
    check_writable(csv_file)
    check_report(report, suffixes=(".html", ".svg"))
    program = None
    if command_line:
        check_command(command_line)
        program = counted_command(command_line, step_pattern, injects=not no_inject, grace_s=grace_s, to_stderr=True)
    device = _one_device(devices, workload, config)
    swept = make_sweep(
        device,
        workload=workload,
        wanted=wanted,
        iterations=iterations,
        program=program,
        on_failure=lambda partial: keep_partial(partial, config),
    )
    try:
        deliver(swept, tariff, csv_file=csv_file, report=report, as_json=as_json)
    except BaseException:
        keep_partial(swept, config)
        raise
    keep_sweep(swept, config)


def _one_device(devices: tuple[str, ...], workload: str | None, config: Config) -> str:
    """Return the one device to sweep; raise where several are named, and remark where a name stands for several.

    A workload that no GPU has raises too, before a simulated one is announced in place of a missing one.
    """
    from wattune.api import surroundings
    from wattune.devices.open import expand
    from wattune.workloads.catalog import make_workload

    names = tuple(dict.fromkeys(devices)) or (config.device,)
    if len(names) > 1:
        raise InputError(
            f"a sweep measures one GPU, and {len(names)} are named: {', '.join(names)}",
            hint=f"sweep one after the other, or only one of the same model: --device {names[0]}",
        )
    if workload is not None and not names[0].startswith("table:"):  # a table has workloads of its own
        make_workload(workload)
    if names[0] in ("auto", "nvml"):
        found = expand(names, surroundings(config))
        if len(found) > 1:
            remark(f"wattune: {len(found)} GPUs are visible; the first is set and measured: --device {found[0]}")
    return names[0]


def _slowdown(text: str) -> float:
    from wattune.core.objective import parse_share

    try:
        return parse_share(text)
    except ValueError:
        raise InputError(f"{text!r} is no slowdown", hint="write a share such as 5% or 0.05") from None
