"""`wattune doctor`: show what prevents measuring or tuning on this machine, and how to fix it."""

from __future__ import annotations

import click

from wattune.cli.output import console, json_option, print_json
from wattune.config import Config, load_config
from wattune.core.errors import WattuneError

MARKS = {"ok": "[green]✓[/]", "note": "[yellow]•[/]", "problem": "[red]✗[/]"}


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Show what prevents measuring or tuning on this machine, and how to fix it.

    No setting is changed. The exit code is 0 even if there are problems, since without a GPU wattune uses a simulated
    one.
    """
    from wattune.devices.diagnosis import diagnose, gather

    config = load_config()
    facts = gather(state_dir=config.state_dir, visible=config.visible_gpus, store_failure=_store_failure(config))
    findings = diagnose(facts)
    if as_json:
        print_json({"simulated": facts.driver.emulated, "findings": list(findings)})
        return
    screen = console()
    for finding in findings:
        screen.print(f"{MARKS[finding.level]} [bold]{finding.topic}[/]: {finding.line}", soft_wrap=True)
        if finding.fix and finding.level != "ok":
            screen.print(f"    → {finding.fix}", soft_wrap=True, markup=False)
    if facts.driver.failure is not None:
        screen.print("\nWithout a GPU every command uses a simulated one: try `wattune demo`.", markup=False)


def _store_failure(config: Config) -> WattuneError | None:
    from wattune.store.sql_store import open_store

    try:
        open_store(config.store_url)
    except WattuneError as error:
        return error
    return None
