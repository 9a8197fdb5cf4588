"""`wattune restore`: undo what dead processes left on GPUs."""

from __future__ import annotations

import click

from wattune.cli.output import console, json_option, print_json
from wattune.config import load_config


@click.command()
@json_option
def command(as_json: bool) -> int:
    """Give GPUs back the settings they had before a process died.

    Every process notes what it found before it sets a GPU. This command undoes what is left of those whose process is
    gone; GPUs that a living process tunes are not touched. Every start of wattune does the same by itself.
    """
    from wattune.api import surroundings
    from wattune.devices.open import restore_abandoned

    outcomes = restore_abandoned(surroundings(load_config()))
    if as_json:
        print_json(
            {
                "restored": [entry.device for entry, error in outcomes if error is None],
                "failed": [
                    {"device": entry.device, "error": error.message, "hint": error.hint}
                    for entry, error in outcomes
                    if error is not None
                ],
            }
        )
    screen = console()
    for entry, error in outcomes:
        if error is None and not as_json:
            what = ", ".join(knob.replace("_", " ") for knob in entry.touched)
            screen.print(f"restored {entry.device}: {what} as before process {entry.pid}", markup=False)
        elif error is not None:
            click.echo(f"error: {error.message}", err=True)
            click.echo(f"hint: {error.hint}", err=True)
    if not outcomes and not as_json:
        screen.print("nothing to restore: no process died with a GPU in its hands")
    return 1 if any(error is not None for _, error in outcomes) else 0
