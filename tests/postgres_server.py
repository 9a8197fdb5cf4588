"""A real PostgreSQL server for tests, on a Unix socket in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest

_numbers = count()


def server_programs() -> Path | None:
    """Return the folder of initdb and pg_ctl, on the path or where Debian installs them."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "pg_ctl").exists()), None)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Path]:
    """Start a server, return its socket folder, and remove both at the end."""
    programs = server_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server here: apt-get install -y postgresql")
    user = _server_user()
    folder = Path(tempfile.mkdtemp(prefix="wattune-pg-"))
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
        folder.chmod(0o711)
    data = folder / "data"
    _run_as(user, programs / "initdb", "-D", data, "-U", "wattune", "-A", "trust", "-E", "UTF8", "--no-sync")
    settings = f"-k {folder} -c listen_addresses= -c fsync=off -c max_connections=50"
    _run_as(user, programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", settings, "start")
    try:
        yield folder
    finally:
        _run_as(user, programs / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder)


@pytest.fixture
def postgres_url(postgres_server: Path) -> str:
    """Create an empty database and return its URL."""
    import psycopg

    name = f"history_{next(_numbers)}"
    with psycopg.connect(host=str(postgres_server), user="wattune", dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return f"postgresql://wattune:secret@/{name}?host={quote(str(postgres_server), safe='')}"


def _server_user() -> pwd.struct_passwd | None:
    """The user of the server, which refuses to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _run_as(user: pwd.struct_passwd | None, *words: str | Path) -> None:
    who = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    # The server inherits the output; with a pipe, `run` would wait until the server ends.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run([str(word) for word in words], stdout=output, stderr=output, cwd="/", **who)
        output.seek(0)
        assert done.returncode == 0, output.read().decode()
