"""`wattune restore`: undo the settings that dead processes left on GPUs."""

from __future__ import annotations

import click

from wattune.cli.output import json_option, print_error, print_json, print_line
from wattune.config import load_config


@click.command()
@json_option
def command(as_json: bool) -> int:
    """Undo the settings that a dead process left on GPUs.

    Every process records the settings of a GPU before it changes them. This command restores them where the process no
    longer runs; GPUs that a running process tunes are not touched. Every start of wattune does the same.
    """
    from wattune.api import surroundings
    from wattune.devices.open import restore_abandoned

    outcomes = restore_abandoned(surroundings(load_config()))
    restored = [entry for entry, error in outcomes if error is None]
    failed = [(entry.device, error) for entry, error in outcomes if error is not None]
    if as_json:
        failures = [{"device": device, "error": error.message, "hint": error.hint} for device, error in failed]
        print_json({"restored": [entry.device for entry in restored], "failed": failures})
    else:
        for entry in restored:
            what = ", ".join(knob.replace("_", " ") for knob in entry.touched)
            print_line(f"restored {entry.device}: {what} as before process {entry.pid}")
    for _, error in failed:
        print_error(error)
    if not outcomes and not as_json:
        print_line("nothing to restore: no process died while it tuned a GPU")
    return 1 if failed else 0
