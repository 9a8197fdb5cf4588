"""The user who called sudo: programs that a command runs as root run as that user, unless --as-root is given.

Only wattune itself needs root, to set GPUs. Its store, its settings and its journals are those of root then. Programs
whose own processes set GPUs, as those of `pipeline profile`, stay root's.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

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
