"""The options of commands that run a program of the user, each written once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from wattune.cli.gpus import require_gpu_option
from wattune.cli.output import remark
from wattune.process.program import GRACE_S, Program, check_command
from wattune.process.user import CallingUser

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "step_pattern": click.option(
        "--step-pattern", metavar="REGEX", help="The program prints this after each iteration."
    ),
    "no_inject": click.option("--no-inject", is_flag=True, help="Do not count steps inside the program's Python."),
    "phase_pattern": click.option(
        "--phase-pattern", metavar="REGEX", help="It prints this, with a name, where a phase of one begins."
    ),
    "require_gpu": require_gpu_option,
    "grace_s": click.option(
        "--grace",
        "grace_s",
        type=click.FloatRange(min=0),
        default=GRACE_S,
        show_default=True,
        help="Seconds between SIGTERM and SIGKILL.",
    ),
    "as_root": click.option(
        "--as-root", is_flag=True, help="Under sudo, run the program as root and not as the user who called sudo."
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOptions:
    """The options of a command that runs a program, as they were given; those that it does not have are left out."""

    step_pattern: str | None = None
    no_inject: bool = False
    phase_pattern: str | None = None
    grace_s: float = GRACE_S
    as_root: bool = False

    @property
    def user(self) -> CallingUser | None:
        """The user as whom the program runs; None for that of this process."""
        return None if self.as_root else CallingUser.of_sudo(os.environ)

    @property
    def uid(self) -> int | None:
        """The number of that user."""
        return None if self.user is None else self.user.uid

    def give(self, descriptor: int) -> None:
        """Make that user the owner of a file that the program uses."""
        if self.user is not None:
            os.fchown(descriptor, self.user.uid, self.user.gid)

    def check(self, command: Sequence[str], *, quiet: bool = False) -> None:
        """Raise where there is no such command; under sudo, print as which user it runs, unless quietly."""
        check_command(command)
        if not quiet:
            self.name_user()

    def name_user(self) -> None:
        """Print, under sudo, as which user the program runs."""
        user = CallingUser.of_sudo(os.environ)
        if user is None:
            return
        if self.as_root:
            remark(f"wattune: the program runs as root; without --as-root it runs as {user.name}, who called sudo")
        else:
            remark(
                f"wattune: the program runs as {user.name}, who called sudo, with the environment that sudo kept "
                "(`sudo -E` keeps all of it); --as-root runs it as root"
            )

    def program(self, command: Sequence[str]) -> Program:
        """Return the program of a command line, with the environment and the output of this process."""
        return Program(command=command, user=self.user, grace_s=self.grace_s)


def program_options(*names: str) -> Callable[[F], Any]:
    """Add these options, and pass their values as one: `starting`."""

    def add(function: F) -> Any:
        @wraps(function)
        def started(**given: Any) -> Any:
            mine = {name: given.pop(name) for name in names if name in given}
            return function(starting=ProgramOptions(**mine), **given)

        command: Any = started
        for name in reversed(names):
            command = _OPTIONS[name](command)
        return command

    return add


def steps_and_program_options(function: F) -> Any:
    """Add the options of a command that runs a program on GPUs and counts its steps."""
    return program_options("step_pattern", "no_inject", "require_gpu", "grace_s", "as_root")(function)


def name_root_program(why: str) -> None:
    """Print, under sudo, why the program runs as root all the same."""
    user = CallingUser.of_sudo(os.environ)
    if user is not None:
        remark(f"wattune: the program runs as root and not as {user.name}, who called sudo, since {why}")
