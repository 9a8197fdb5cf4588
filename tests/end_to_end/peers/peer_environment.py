"""Makes the environment in which other people's programs run; `make test` does it, and the tests where it is missing.

    python tests/end_to_end/peers/peer_environment.py

The environment is whole once its stamp holds the digest of requirements.txt. Any number of processes may ask at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parents[2] / ".venv-peers"
REQUIREMENTS = HERE / "requirements.txt"
STAMP = FOLDER / ".ready"
NVTOP = FOLDER / "nvtop" / "usr" / "bin" / "nvtop"
SUITES = HERE / "suite-requirements.txt"
SUITES_STAMP = FOLDER / ".suites-ready"
SUITE_SOURCE = FOLDER / "pynvml-source"
TRAINERS = HERE / "trainer-requirements.txt"
TRAINERS_FOLDER = FOLDER / "trainers"
_PATIENCE_S = 20.0


def ensure() -> Path:
    """The folder of the environment, made now unless it is there and of these requirements."""
    if not _is_ready():
        FOLDER.mkdir(exist_ok=True)
        with (FOLDER / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_ready():
                _make()
    return FOLDER


def ensure_suites() -> Path:
    """The folder of NVIDIA's tests of its Python bindings, in the environment, which then also has Kernel Tuner.

    The tests come with the source distribution of `pynvml`, which is fetched and unpacked, and not installed: it would
    only redirect the module of nvidia-ml-py.
    """
    ensure()
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not SUITES_STAMP.exists() or SUITES_STAMP.read_text() != SUITES.read_text():
            pip = [str(FOLDER / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-qq"]
            subprocess.run([*pip, "install", "--no-compile", "--requirement", str(SUITES)], check=True)
            shutil.rmtree(SUITE_SOURCE, ignore_errors=True)
            source = ["--no-deps", "--no-binary", ":all:", "--dest", str(SUITE_SOURCE), "pynvml>=13"]
            subprocess.run([*pip, "download", *source], check=True)
            for archive in SUITE_SOURCE.glob("*.tar.gz"):
                shutil.unpack_archive(archive, SUITE_SOURCE, filter="data")
            SUITES_STAMP.write_text(SUITES.read_text())
    return next(SUITE_SOURCE.glob("pynvml-*/pynvml_utils")).parent


def ensure_trainers(packages: Path) -> Path:
    """The Python of an environment with Hugging Face's and Lightning's trainers, in the folder of the environment.

    It also finds what is installed in the folder `packages`, which must have PyTorch: a second one would take a minute
    and a gigabyte. It takes 150 MB itself.
    """
    python = TRAINERS_FOLDER / "bin" / "python"
    stamp, wanted = TRAINERS_FOLDER / ".ready", f"{packages}\n{TRAINERS.read_text()}"
    TRAINERS_FOLDER.mkdir(parents=True, exist_ok=True)
    with (TRAINERS_FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            venv.create(TRAINERS_FOLDER, with_pip=True, symlinks=True)
            own = next((TRAINERS_FOLDER / "lib").glob("python*/site-packages"))
            (own / "pytorch.pth").write_text(f"{packages}\n")
            pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-qq", "--no-compile"]
            subprocess.run([*pip, "--requirement", str(TRAINERS)], check=True)
            stamp.write_text(wanted)
    return python


def _digest() -> str:
    return hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()


def _is_ready() -> bool:
    return STAMP.exists() and STAMP.read_text() == _digest()


def _make() -> None:
    if not (FOLDER / "bin" / "pip").exists():
        venv.create(FOLDER, with_pip=True, symlinks=True)
    install = [
        str(FOLDER / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "-qq",
        "--no-compile",
    ]
    subprocess.run([*install, "--requirement", str(REQUIREMENTS)], check=True)
    _fetch_nvtop()
    STAMP.write_text(_digest())


def _fetch_nvtop() -> None:
    """Put nvtop into the environment, without root, where Debian's packages can be downloaded.

    It is in Debian's contrib, which few machines enable, so the machine's own sources are read with that component in
    place of main. Where that fails or takes too long, the test of nvtop is skipped.
    """
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    if shutil.which("nvtop") or not sources.exists() or not shutil.which("apt-get"):
        return
    with tempfile.TemporaryDirectory(prefix="peers-nvtop-") as name:
        work = Path(name)
        (work / "lists" / "partial").mkdir(parents=True)
        (work / "contrib.sources").write_text(_with_component(sources.read_text(), "contrib"))
        apt = ["apt-get", "-qq", "-o", f"Dir::Etc::sourcelist={work}/contrib.sources"]
        apt += ["-o", "Dir::Etc::sourceparts=/dev/null", "-o", f"Dir::State::lists={work}/lists"]
        apt += ["-o", f"Dir::Cache={work}", "-o", "APT::Sandbox::User=", "-o", "Acquire::http::Timeout=20"]
        for command in ([*apt, "update"], [*apt, "download", "nvtop"]):
            try:
                subprocess.run(command, cwd=work, capture_output=True, check=True, timeout=_PATIENCE_S)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
                return
        for package in work.glob("nvtop_*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(FOLDER / "nvtop")], check=False)


def _with_component(sources: str, component: str) -> str:
    lines = sources.splitlines()
    return "\n".join(f"Components: {component}" if line.startswith("Components:") else line for line in lines) + "\n"


if __name__ == "__main__":
    try:
        ensure_suites()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"the environment of the peers cannot be made: {error}")
    STAMP.touch()
