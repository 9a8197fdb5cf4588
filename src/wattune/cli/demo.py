"""`wattune demo`: a sweep of a simulated GPU, from measuring to the report."""

from __future__ import annotations

from pathlib import Path

import click

from wattune.cli.output import FILE, check_writable, console, json_option
from wattune.config import load_config

DEVICE = "sim:a100"
WORKLOAD = "resnet50"
REPORT = "wattune-report.html"


@click.command()
@click.option("--out", type=FILE, default=REPORT, show_default=True, help="Where to write the report page.")
@json_option
def command(out: Path, as_json: bool) -> None:
    """Sweep a simulated A100 training ResNet-50, print the frontier and write a report page.

    No real GPU is changed, and nothing is stored in the history.
    """
    from wattune.cli.sweep.output import deliver
    from wattune.cli.sweep.work import make_sweep
    from wattune.sweeps.settings import WantedSettings

    check_writable(out)
    swept = make_sweep(DEVICE, workload=WORKLOAD, wanted=WantedSettings(points=24, even=True), iterations=None)
    deliver(swept, load_config().tariff, csv_file=None, report=out, as_json=as_json)
    if not as_json:
        console().print(f"[dim]Next: open it, wattune monitor --device {DEVICE}, wattune sweep --help[/]")
