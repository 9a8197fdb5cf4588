"""The user who called sudo: programs that a command runs as root run as that user, unless --as-root is given.

Only wattune itself needs root, to set GPUs. Its store, its settings and its journals are those of root then. Programs
whose own processes set GPUs, as those of `pipeline profile`, stay root's.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import click

from wattune.cli.output import remark

F = TypeVar("F", bound=Callable[..., Any])

_USER, _AS_ROOT, _TOLD = "wattune.calling_user", "wattune.as_root", "wattune.calling_user_told"
_MOST_ID = (1 << 32) - 2


@dataclass(frozen=True, slots=True)
class CallingUser:
    """A user, and the groups and the environment of a login."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    variables: Mapping[str, str]

    @classmethod
    def of_sudo(cls, environment: Mapping[str, str]) -> Self | None:
        """Return who called sudo; None where nobody did, or root itself."""
        uid, gid = (_number(environment.get(name)) for name in ("SUDO_UID", "SUDO_GID"))
        if os.geteuid() != 0 or not uid:
            return None
        try:
            known = pwd.getpwuid(uid)
        except KeyError:  # of a directory that does not answer, or of another container
            gid = uid if gid is None else gid
            return cls(uid, gid, (gid,), _login(environment.get("SUDO_USER") or str(uid), home="/", shell="/bin/sh"))
        gid = known.pw_gid if gid is None else gid
        variables = _login(known.pw_name, home=known.pw_dir, shell=known.pw_shell)
        return cls(uid, gid, tuple(os.getgrouplist(known.pw_name, gid)), variables)

    @property
    def name(self) -> str:
        return self.variables["USER"]

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment as sudo left it, with what a login of the user sets."""
        return {**environment, **self.variables}


def _login(name: str, *, home: str, shell: str) -> dict[str, str]:
    return {"USER": name, "LOGNAME": name, "HOME": home, "SHELL": shell}


def _number(text: str | None) -> int | None:
    number = int(text) if text and text.isascii() and text.isdecimal() and len(text) <= 10 else None
    return number if number is not None and number <= _MOST_ID else None


def as_root_option(function: F) -> F:
    """Add the --as-root flag; without it, programs of this command run as the user who called sudo."""
    return click.option(
        "--as-root",
        is_flag=True,
        expose_value=False,
        callback=_choose,
        help="Under sudo, run the program as root and not as the user who called sudo.",
    )(function)


def _choose(ctx: click.Context, option: click.Parameter, as_root: bool) -> None:
    del option
    ctx.meta[_USER], ctx.meta[_AS_ROOT] = CallingUser.of_sudo(os.environ), as_root


def program_user() -> CallingUser | None:
    """Return the user as whom this command runs programs; None for that of this process."""
    ctx = click.get_current_context(silent=True)
    return None if ctx is None or ctx.meta.get(_AS_ROOT) else ctx.meta.get(_USER)


def program_uid() -> int | None:
    """Return the number of that user."""
    user = program_user()
    return None if user is None else user.uid


def give_to_program(descriptor: int) -> None:
    """Make the program's user the owner of a file that it uses."""
    user = program_user()
    if user is not None:
        os.fchown(descriptor, user.uid, user.gid)


def name_program_user() -> None:
    """Print once, under sudo, as which user the program runs, unless the command is quiet."""
    ctx = click.get_current_context(silent=True)
    user: CallingUser | None = None if ctx is None else ctx.meta.get(_USER)
    if ctx is None or user is None or ctx.meta.get(_TOLD) or ctx.params.get("quiet"):
        return
    ctx.meta[_TOLD] = True
    if ctx.meta[_AS_ROOT]:
        remark(f"wattune: the program runs as root; without --as-root it runs as {user.name}, who called sudo")
    else:
        remark(
            f"wattune: the program runs as {user.name}, who called sudo, with the environment that sudo kept "
            "(`sudo -E` keeps all of it); --as-root runs it as root"
        )


def name_root_program(why: str) -> None:
    """Print, under sudo, why the program runs as root all the same."""
    user = CallingUser.of_sudo(os.environ)
    if user is not None:
        remark(f"wattune: the program runs as root and not as {user.name}, who called sudo, since {why}")
