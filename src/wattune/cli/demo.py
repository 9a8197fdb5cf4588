"""`wattune demo`: the whole way from a sweep to a report, on a simulated GPU."""

from __future__ import annotations

from pathlib import Path

import click

from wattune.cli.output import console, json_option, print_json
from wattune.cli.sweep import make_sweep, show, write_files
from wattune.cli.sweep_output import check_writable, document
from wattune.tuning.sweep import Knob

DEVICE = "sim:a100"
WORKLOAD = "resnet50"
REPORT = "wattune-report.html"


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=REPORT,
    show_default=True,
    help="Where to write the report page.",
)
@json_option
def command(out: Path, as_json: bool) -> None:
    """Sweep a simulated A100 training ResNet-50, print the frontier and write a report page.

    Nothing is set on any real GPU, and nothing goes into the history.
    """
    check_writable(out)
    swept = make_sweep(DEVICE, workload=WORKLOAD, knob=Knob.SM_CLOCK, points=24, iterations=None)
    files = write_files(swept, csv_file=None, report=out)
    if as_json:
        print_json(document(swept, files=files))
        return
    show(swept, files)
    console().print(f"[dim]Open it in a browser. Next: wattune sweep --help, wattune monitor --device {DEVICE}[/]")
