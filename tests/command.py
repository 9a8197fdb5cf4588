"""`python -m wattune` as a process of its own that does not use the files of the user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from processes import shared_folder


class Command:
    """Runs `python -m wattune …` in `folder`, with its store, state, settings and temporary files there too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ours = ("WATTUNE_", "CUDA_VISIBLE")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)} | {
            "WATTUNE_STORE": str(folder / "store" / "history.db"),
            "WATTUNE_STATE": str(folder / "state"),
            "WATTUNE_LOCKS": str(folder / "locks"),
            # The emulated library is compiled once for all tests, as in `emulated.py`.
            "WATTUNE_CACHE": str(shared_folder()),
            "WATTUNE_CONFIG": str(folder / "none.toml"),
            "TMPDIR": str(folder),
            "COLUMNS": "100",
            "PYTHONIOENCODING": "utf-8",
        }

    def line(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "wattune", *arguments]

    def __call__(
        self, *arguments: str, largest_file: int | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the command; no file may grow beyond `largest_file` bytes, as on a full disk."""
        command = self.line(*arguments)
        if largest_file is not None:
            command = [sys.executable, "-c", _LIMITED, str(largest_file), *command]
            # Python 3.11 keeps the bytecode file of which only a part could be written, and fails to import it later.
            variables = {"PYTHONDONTWRITEBYTECODE": "1", **variables}
        return subprocess.run(
            command,
            env={**self.environment, **variables},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start the command as the leader of its own process group, as under a shell without a terminal."""
        return subprocess.Popen(
            self.line(*arguments),
            env={**self.environment, **variables},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


_LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
os.execv(sys.argv[2], sys.argv[2:])
"""


def complaint(done: subprocess.CompletedProcess[str], *, code: int = 1) -> tuple[str, str]:
    """Return the error line and the hint of a command that failed as expected."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    places = [place for place, line in enumerate(lines) if line.startswith("error: ")]
    assert len(places) == 1, done.stderr
    assert lines[places[0] + 1].startswith("hint: "), done.stderr
    return lines[places[0]].removeprefix("error: "), lines[places[0] + 1].removeprefix("hint: ")
