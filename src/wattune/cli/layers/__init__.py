"""`wattune layers`: clocks per layer of a network, and what changing clocks costs on a GPU."""

from __future__ import annotations

import click

from wattune.cli.layers.measure import measure
from wattune.cli.layers.plan import plan
from wattune.cli.layers.roofline import roofline
from wattune.cli.layers.switch_latency import switch_latency


@click.group()
def command() -> None:
    """Find out whether other clocks for some layers of a network save energy, and what changing clocks costs."""


command.add_command(measure)
command.add_command(plan)
command.add_command(roofline)
command.add_command(switch_latency)
