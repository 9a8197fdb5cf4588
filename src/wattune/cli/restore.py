"""`wattune restore`: undo the settings that dead processes left on GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wattune.cli.output import json_option, print_error, print_json, print_line
from wattune.config import load_config
from wattune.core.errors import WattuneError
from wattune.devices.entry import KNOBS

if TYPE_CHECKING:
    from wattune.devices.locks import Holder
    from wattune.devices.watchdog import Restoration


@click.command()
@json_option
def command(as_json: bool) -> int:
    """Undo the settings that a dead process left on GPUs.

    Every process records the settings of a GPU before it changes them, and a watchdog restores them when it dies. This
    command does the same where the watchdog was killed too. A limit that somebody else has set since is left as it is.
    GPUs that a running process tunes are not touched; they are listed. Root also undoes what other users' processes
    left.
    """
    from wattune.api import surroundings
    from wattune.devices.open import restore_abandoned

    around = surroundings(load_config())
    outcomes = restore_abandoned(around)
    holders = around.journal.holders()
    errors = [outcome.error for outcome in outcomes if isinstance(outcome.error, WattuneError)]
    if as_json:
        print_json(_document(outcomes, holders))
    else:
        _print(outcomes, holders)
    for error in errors:
        print_error(error)
    return 1 if errors else 0


def _document(outcomes: tuple[Restoration, ...], holders: tuple[Holder, ...]) -> dict[str, Any]:
    failed = [(outcome.device, outcome.error) for outcome in outcomes if isinstance(outcome.error, WattuneError)]
    return {
        "restored": [outcome.device for outcome in outcomes if outcome.error is None],
        "left": [{"device": outcome.device, "why": why} for outcome in outcomes for why in outcome.left],
        "failed": [{"device": device, "error": error.message, "hint": error.hint} for device, error in failed],
        "held": [holder_document(holder) for holder in holders],
    }


def holder_document(holder: Holder) -> dict[str, Any]:
    """Return a held GPU as JSON: its lock's name, and the process, its state, user and age as far as known."""
    return {
        "gpu": holder.name,
        "pid": holder.pid,
        "state": holder.state,
        "user": holder.user,
        "age_s": holder.age_s,
    }


def _print(outcomes: tuple[Restoration, ...], holders: tuple[Holder, ...]) -> None:
    for outcome in outcomes:
        if outcome.entry is not None and outcome.error is None:
            what = ", ".join(KNOBS[knob] for knob in outcome.entry.ours)
            whose = "" if outcome.user is None else f" of user {outcome.user}"
            print_line(f"restored {outcome.device}: {what} as before process {outcome.entry.pid or 'unknown'}{whose}")
        for why in outcome.left:
            print_line(f"left as it is: {outcome.device}: {why}")
    for holder in holders:
        print_line(holder_line(holder))
    if not outcomes:
        print_line("nothing to restore: no journal has settings of a dead process")


def holder_line(holder: Holder) -> str:
    """Return a line about a process that tunes a GPU now."""
    who = "a process that is not visible here" if holder.pid is None else f"process {holder.pid}"
    details = [holder.state or "state unknown"]
    if holder.age_s is not None:
        details.append(f"for {_span(holder.age_s)}")
    end = f"; `kill -CONT {holder.pid}` continues it, `kill -9 {holder.pid}` ends it" if is_stopped(holder) else ""
    return f"{holder.name} is held by {who} ({', '.join(details)}){end}"


def is_stopped(holder: Holder) -> bool:
    """Return whether a process holds a GPU without going on."""
    return holder.pid is not None and holder.state in ("stopped", "traced", "dead")


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
