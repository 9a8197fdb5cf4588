"""`wattune sweep`: measure a workload at many settings and show the frontier."""

from __future__ import annotations

from pathlib import Path

import click

from wattune.cli.child import grace_option
from wattune.cli.output import FILE, check_writable, json_option
from wattune.config import load_config
from wattune.control.sweep import Knob


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--device", help="The GPU: auto, nvml:0, sim:a100, table:FILE.csv …")
@click.option("--workload", help="The workload of a simulated GPU: resnet50, resnet50:128 (batch size), bert-base …")
@click.option(
    "--knob",
    type=click.Choice([knob.value for knob in Knob]),
    default=Knob.SM_CLOCK.value,
    show_default=True,
    help="The setting to vary.",
)
@click.option("--points", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Most settings to try.")
@click.option("--iterations", type=click.IntRange(min=1), help="Iterations, or runs of COMMAND, at each setting.")
@click.option("--csv", "csv_file", type=FILE, help="Write the trials as CSV.")
@click.option("--report", type=FILE, help="Write a report page (HTML).")
@grace_option
@json_option
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND]")
def command(
    device: str | None,
    workload: str | None,
    knob: str,
    points: int,
    iterations: int | None,
    csv_file: Path | None,
    report: Path | None,
    grace_s: float,
    as_json: bool,
    command_line: tuple[str, ...],
) -> None:
    """Measure a workload at many settings and print its time-energy frontier.

    A simulated GPU trains the named workload. On a real GPU the workload is COMMAND, which runs from start to end at
    each setting; its output goes to standard error. The driver's default is always tried first, and the GPU's settings
    are restored at the end.
    """
    from wattune.cli.sweep.output import deliver, keep_partial, keep_sweep
    from wattune.cli.sweep.work import make_sweep

    config = load_config()
    for path in (csv_file, report):
        check_writable(path)
    swept = make_sweep(
        device or config.device,
        workload=workload,
        knob=Knob(knob),
        points=points,
        iterations=iterations,
        command_line=command_line,
        grace_s=grace_s,
        on_failure=lambda partial: keep_partial(partial, config),
    )
    try:
        deliver(swept, csv_file=csv_file, report=report, as_json=as_json)
    except BaseException:
        keep_partial(swept, config)
        raise
    keep_sweep(swept, config)
