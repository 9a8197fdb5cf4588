"""A PostgreSQL server of one's own, on a Unix socket in a temporary folder, that can be stopped like a hung one."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from urllib.parse import quote


def server_programs() -> Path | None:
    """Return the folder of initdb and pg_ctl, on the path or where Debian installs them; None where there is none."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "pg_ctl").exists()), None)


@dataclass(frozen=True)
class PostgresServer:
    """A running server."""

    folder: Path
    _numbers: Iterator[int] = field(default_factory=count)

    def new_url(self) -> str:
        """Create an empty database and return its URL."""
        import psycopg

        name = f"history_{next(self._numbers)}"
        with psycopg.connect(host=str(self.folder), user="wattune", dbname="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql://wattune:secret@/{name}?host={quote(str(self.folder), safe='')}"

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop all its processes with SIGSTOP while a block runs: it takes connections and never answers."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes."""
        import psutil

        first = psutil.Process(int((self.folder / "data" / "postmaster.pid").read_text().split()[0]))
        for process in (first, *first.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


@contextmanager
def running_postgres(programs: Path) -> Iterator[PostgresServer]:
    """Start a server while a block runs, and remove its files."""
    user = _server_user()
    folder = Path(tempfile.mkdtemp(prefix="wattune-pg-", dir="/tmp"))  # the path of a socket must be short
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
        folder.chmod(0o711)
    data = folder / "data"
    try:
        _run_as(user, programs / "initdb", "-D", data, "-U", "wattune", "-A", "trust", "-E", "UTF8", "--no-sync")
        settings = f"-k {folder} -c listen_addresses= -c fsync=off -c max_connections=50"
        _run_as(user, programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", settings, "start")
        try:
            yield PostgresServer(folder)
        finally:
            _run_as(user, programs / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _server_user() -> pwd.struct_passwd | None:
    """The user of the server, which refuses to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _run_as(user: pwd.struct_passwd | None, *words: str | Path) -> None:
    line = [str(word) for word in words]
    # The server inherits the output; with a pipe, `run` would wait until the server ends.
    with tempfile.TemporaryFile() as output:
        if user is None:
            done = subprocess.run(line, stdout=output, stderr=output, cwd="/", check=False)
        else:
            who, group = user.pw_uid, user.pw_gid
            done = subprocess.run(
                line, stdout=output, stderr=output, cwd="/", user=who, group=group, extra_groups=[], check=False
            )
        output.seek(0)
        if done.returncode != 0:
            raise RuntimeError(output.read().decode(errors="replace"))
