"""`wattune kernels`: launch, SMs and clock of the kernels of a large model, planned together."""

from __future__ import annotations

import click

from wattune.cli.kernels.measure import measure
from wattune.cli.kernels.plan import plan
from wattune.cli.kernels.show import show


@click.group()
def command() -> None:
    """Plan for each partition of a model when its collective starts, on how many SMs, and at which clock.

    The plan file is that of `wattune pipeline`. Use `wattune pipeline export --format kareus` and `pipeline import` for
    the files of Kareus, and `played_overlap` of wattune.integrations.overlap to play it.
    """


command.add_command(plan)
command.add_command(show)
command.add_command(measure)
