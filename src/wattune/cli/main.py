"""The `wattune` command: finds the sub-command, and turns our errors into one line and a hint."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from wattune._version import __version__
from wattune.core.errors import WattuneError

COMMANDS = {
    "demo": "Sweep a simulated A100 training ResNet-50, print the frontier, write a report.",
    "devices": "List the GPUs that can be used and what may be set on them.",
    "doctor": "Say what keeps this machine from measuring or tuning, and how to mend it.",
    "measure": "Run a command and print the joules, watts and seconds that it took.",
    "monitor": "Watch power, clocks, limit, utilisation and temperature.",
    "sweep": "Measure a workload at many settings and print its time-energy frontier.",
    "job": "Tune training jobs that run again and again: batch size and power limit.",
    "run": "Tune any program while it runs: less energy, hardly slower.",
    "attach": "Tune a program that runs already.",
    "period": "Say what repeats in a power trace, how exactly, or why that cannot be seen.",
    "physics": "Fit a simulated GPU to a sweep of your own.",
    "pipeline": "Plan the clocks of a training pipeline: the least energy for every iteration time.",
    "simulate": "Run a command against simulated GPUs served as an NVML library.",
    "history": "List what was measured before.",
    "export": "Write the history as CSV, JSON or Parquet.",
    "restore": "Give GPUs back the settings they had before a process died.",
    "bench": "Measure wattune itself side by side with its peers.",
    "config": "Show each setting of wattune and where it came from.",
}


class LazyGroup(click.Group):
    """A group that imports a command's file when the command is used, so that --help stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table above."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"wattune.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """What the command returns; that the reader of its output (head, less) goes away is no failure of ours."""
        result = 0
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return result

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command, or a usage error that suggests the nearest one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(error.message + _suggestion(args[0]), ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _suggestion(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    return f" Did you mean '{near[0]}'?" if near else ""


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="wattune")
def wattune() -> None:
    """Train the same model for fewer joules.

    Without a GPU every command works on a simulated one, and says so.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """The exit code of a command line: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    try:
        result = wattune.main(args=arguments, prog_name="wattune", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except WattuneError as error:
        click.echo(f"error: {error.message}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        return 1
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
