"""The `wattune` command: find the sub-command, and print errors as one line and a hint."""

from __future__ import annotations

import importlib
import os
import re
import sys
from typing import Any

import click

from wattune._version import __version__
from wattune.core.bounds import too_large
from wattune.core.errors import WattuneError
from wattune.process.standard_streams import output_failure, prepare_streams

COMMANDS = {
    "demo": "Sweep a simulated A100 training ResNet-50, print the frontier, write a report.",
    "devices": "List the GPUs that can be used and what may be set on them.",
    "doctor": "Show what prevents measuring or tuning on this machine, and how to fix it.",
    "measure": "Run a command and print its joules, watts and seconds.",
    "monitor": "Watch power, clocks, limit, utilisation and temperature.",
    "sweep": "Measure a workload at many settings and print its time-energy frontier.",
    "hold": "Hold a known setting while a command runs, and print what it spent.",
    "job": "Tune the batch size and power limit of training jobs that recur.",
    "run": "Tune any program while it runs: less energy within a slowdown limit.",
    "attach": "Tune a program that is already running.",
    "period": "Find the period of a power trace, with its error, or why there is none.",
    "physics": "Fit a simulated GPU to your own sweep.",
    "pipeline": "Plan the clocks of a training pipeline: least energy for each iteration time.",
    "kernels": "Plan launch, SMs and clock of the kernels of a large model together.",
    "layers": "Plan clocks per layer of a network, and find out whether changing them pays.",
    "simulate": "Run a command against simulated GPUs served as an NVML library.",
    "history": "List earlier runs, or show one.",
    "export": "Write the history as CSV, JSON or Parquet.",
    "restore": "Undo the settings that a dead process left on GPUs.",
    "bench": "Compare wattune with its peers.",
    "config": "Show each setting of wattune and its origin.",
}


OF_OTHER_PACKAGES = {"bench": "install wattune-bench: in a clone of wattune, pip install ./benches"}
"""Commands that are entry points of other packages, and how to get them."""
GROUP = "wattune.commands"
"""The group of these entry points."""


def _own(name: str) -> click.Command:
    command: click.Command = importlib.import_module(f"wattune.cli.{name}").command
    return command


def _installed(name: str) -> click.Command:
    from importlib.metadata import entry_points

    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        raise WattuneError(f"`wattune {name}` is not installed", hint=OF_OTHER_PACKAGES[name])
    command: click.Command = found.load()
    return command


class LazyGroup(click.Group):
    """A group that imports a command only when it is used, so that --help is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command = _installed(cmd_name) if cmd_name in OF_OTHER_PACKAGES else _own(cmd_name)
        _bound_numbers(command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader of its output (head, less) that ends early is no error."""
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
        """Find the command, or suggest the nearest name in a usage error."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            guess = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(error.message + guess, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


OTHER_NAMES = {
    "--gpu": "--device",
    "--gpus": "--device",
    "--devices": "--device",
    "--device": "--gpu",
    "--slowdown": "--max-slowdown",
    "--output": "--out",
    "--html": "--report",
    "--clock": "--setting",
}
"""What other programs, and some of our commands, call an option."""


def _suggested(error: click.ClickException) -> click.ClickException:
    """Suggest our name of an option that other programs call otherwise, if the command has it."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    name = OTHER_NAMES.get(error.option_name)
    there = {one for parameter in error.ctx.command.params for one in parameter.opts}
    if name is None or name not in there:
        return error
    return click.UsageError(f"No such option '{error.option_name}'. Did you mean '{name}'?", error.ctx)


_NUMBER_TYPES = re.compile(r"is not a valid (integer|float)(?: range)?$")
"""How click ends its complaint about what is no number at all."""


def _print_usage_error(error: click.ClickException) -> None:
    """Print an error of click as every other error: one line, and a hint."""
    from wattune.cli.output import print_error

    message = " ".join(error.format_message().split()).removesuffix(".")  # click lists choices on lines of their own
    message = _NUMBER_TYPES.sub(lambda found: f"is not a {'whole ' if found[1] == 'integer' else ''}number", message)
    if message[1:2].islower():
        message = message[:1].lower() + message[1:]
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    path = "wattune" if ctx is None else ctx.command_path
    print_error(WattuneError(message, hint=f"`{path} --help` shows how it is used"))


MOST = 10**9
"""Largest whole number that an option takes where it names no other bound."""


def _bound_numbers(command: click.Command) -> None:
    """Let every numeric option of a command refuse what no computation can use: NaN, infinity, and absurd numbers."""
    for parameter in command.params:
        if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType):
            parameter.callback = parameter.callback or _usable
    for own in command.commands.values() if isinstance(command, click.Group) else ():
        _bound_numbers(own)


def _usable(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, int) and abs(number) > MOST:
            raise click.BadParameter(f"a number above {MOST} is too large.", ctx, parameter)
        problem = None if number is None else too_large(parameter.name or "", number)
        if problem is not None:
            raise click.BadParameter(f"{problem}.", ctx, parameter)
    return value


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="wattune")
def wattune() -> None:
    """Train the same model for fewer joules.

    Without an NVIDIA driver commands use a simulated GPU, say so, and mark their output as simulated.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    prepare_streams()
    try:
        code = run(arguments)
    except OSError:
        if output_failure() is None:
            raise
        code = 1
    failure = output_failure()
    if failure is not None:
        from wattune.cli.output import print_error

        print_error(failure, kind="error" if code == 1 else "warning")
    sys.exit(code)


def _words(arguments: list[str] | None) -> tuple[str, ...]:
    """Return the command line, which pages name."""
    return ("wattune", *(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    try:
        result = wattune.main(args=arguments, prog_name="wattune", standalone_mode=False, obj=_words(arguments))
        return result if isinstance(result, int) else 0
    except WattuneError as error:
        from wattune.cli.output import print_error

        print_error(error)
        return 1
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as page:
        page.show()
        return page.exit_code
    except click.ClickException as error:
        _print_usage_error(_suggested(error))
        return error.exit_code
    except OSError as error:
        if error.filename is None:
            raise
        from wattune.cli.output import print_error

        # What no command expects of a path: a name that is too long, a folder in place of a file, a disk that fails.
        line = f"cannot use {error.filename}: {error.strerror or type(error).__name__}"
        print_error(WattuneError(line, hint="check the name and the permissions of the file"))
        return 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
