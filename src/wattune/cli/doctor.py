"""`wattune doctor`: show what prevents measuring or tuning on this machine, and how to fix it."""

from __future__ import annotations

import getpass
import importlib.metadata
import json
import os
import platform
import re
import shutil
import socket
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from wattune._version import __version__
from wattune.cli.output import FILE, console, json_option, print_json, remark, write_text
from wattune.config import Config, load_config
from wattune.core.errors import NoDriver, WattuneError
from wattune.devices.journal import Journal, boot_id
from wattune.devices.rapl import POWERCAP, find_packages

if TYPE_CHECKING:
    from wattune.devices.locks import Holder
    from wattune.devices.nvml.describe import DriverExam, GpuExam

PACKAGES = ("nvidia-ml-py", "numpy", "scipy", "click", "rich", "SQLAlchemy", "torch")
_DRIVER_FILE = Path("/proc/driver/nvidia/version")
MARKS = {"ok": "[green]✓[/]", "note": "[yellow]•[/]", "problem": "[red]✗[/]"}


@click.command()
@click.option("--bundle", "bundle_file", type=FILE, help="Write a report for an issue, without names and secrets.")
@json_option
def command(bundle_file: Path | None, as_json: bool) -> None:
    """Show what prevents measuring or tuning on this machine, and how to fix it.

    Nothing is set, and no lock is taken. The exit code is 0 even if there are problems, since without a GPU wattune
    uses a simulated one.
    """
    config = load_config()
    journal = Journal(config.state_dir, config.lock_dir)
    facts = gather(journal, visible=config.visible_gpus, store_failure=_store_failure(config))
    findings = diagnose(facts)
    if bundle_file is not None:
        _write_bundle(bundle_file, facts, findings)
    if as_json:
        print_json({"simulated": facts.driver.emulated, "findings": list(findings)})
        return
    screen = console()
    for finding in once_for_all_gpus(findings):
        screen.print(f"{MARKS[finding.level]} [bold]{finding.topic}[/]: {finding.line}", soft_wrap=True)
        if finding.fix and finding.level != "ok":
            screen.print(f"    → {finding.fix}", soft_wrap=True, markup=False)
    if isinstance(facts.driver.failure, NoDriver):
        screen.print("\nWithout a driver every command uses a simulated one: try `wattune demo`.", markup=False)


def _write_bundle(file: Path, facts: Facts, findings: tuple[Finding, ...]) -> None:
    write_text(file, bundle_text(facts, findings, os.environ))
    remark(f"written to {file}; read it before you attach it to an issue")


def _store_failure(config: Config) -> WattuneError | None:
    from wattune.store.sql_store import open_store
    from wattune.store.worker import WAIT_S

    try:
        open_store(config.store_url, timeout_s=WAIT_S).check()
    except WattuneError as error:
        return error
    return None


Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, and the command to run if it failed."""

    topic: str
    level: Level
    line: str
    fix: str | None = None
    gpu: int | None = None
    """The GPU that it is about; None for the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about the machine, from which `diagnose` derives its findings."""

    driver: DriverExam
    visible: str | None
    in_container: bool
    has_sys_admin: bool
    rapl_present: bool
    rapl_readable: bool
    compiler: str | None
    abandoned: tuple[str, ...] | WattuneError
    """The devices that a dead process left set, or the error of reading the journal."""
    held: tuple[Holder, ...]
    """The processes that hold GPUs now."""
    state_problem: str | None
    """Why no journal could be written, so that no GPU could be set."""
    store_failure: WattuneError | None


def gather(journal: Journal, *, visible: str | None, store_failure: WattuneError | None) -> Facts:
    """Examine this machine without changing anything."""
    from wattune.devices.nvml.describe import examine
    from wattune.devices.nvml.library import has_sys_admin

    return Facts(
        driver=examine(),
        visible=visible,
        in_container=Path("/.dockerenv").exists() or Path("/run/.containerenv").exists(),
        has_sys_admin=has_sys_admin(),
        rapl_present=any(POWERCAP.glob("intel-rapl:*")),
        rapl_readable=bool(find_packages()),
        compiler=shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"),
        abandoned=_abandoned(journal),
        held=journal.holders(),
        state_problem=_state_problem(Path(journal.folder)),
        store_failure=store_failure,
    )


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """Return one finding per topic, and those of each GPU."""
    findings = [_driver(facts)]
    findings += [replace(finding, gpu=gpu.index) for gpu in facts.driver.gpus for finding in _gpu(gpu, facts)]
    if facts.visible is not None and facts.driver.gpus and not facts.visible.strip():
        line = "CUDA_VISIBLE_DEVICES is empty: every GPU is hidden"
        findings.append(Finding("visible GPUs", "problem", line, "unset CUDA_VISIBLE_DEVICES"))
    store, failure = Finding("store", "ok", "the history can be read and written"), facts.store_failure
    if failure is not None:
        store = Finding("store", "problem", failure.message, failure.hint)
    return (*findings, _rapl(facts), _emulator(facts), _journal(facts), *_claims(facts), store)


def once_for_all_gpus(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings with those that say the same of several GPUs as one."""
    alike: dict[object, list[Finding]] = {}
    for place, finding in enumerate(findings):
        fix = finding.fix and finding.fix.replace(f"-i {finding.gpu} ", "-i N ")
        alike.setdefault(place if finding.gpu is None else (finding.level, finding.line, fix), []).append(finding)
    return tuple(own[0] if len(own) == 1 else _of_several(own) for own in alike.values())


def _of_several(findings: Sequence[Finding]) -> Finding:
    first, numbers = findings[0], [str(finding.gpu) for finding in findings]
    fix = first.fix and first.fix.replace(f"-i {first.gpu} ", f"-i {','.join(numbers)} ")
    return replace(first, topic=f"GPUs {', '.join(numbers)}", fix=fix, gpu=None)


def _driver(facts: Facts) -> Finding:
    driver = facts.driver
    if driver.failure is not None:
        return Finding("driver", "problem", driver.failure.message, driver.failure.hint)
    if not driver.gpus:
        return Finding("driver", "problem", "the driver is loaded but finds no GPU", "lspci | grep -i nvidia")
    kind = "emulated NVML (simulated GPUs)" if driver.emulated else "NVIDIA driver"
    return Finding("driver", "ok", f"{kind} {driver.version or 'of unknown version'}, {len(driver.gpus)} GPU(s)")


def _gpu(gpu: GpuExam, facts: Facts) -> list[Finding]:
    topic = f"GPU {gpu.index}"
    if gpu.lost is not None:
        return [Finding(topic, "problem", f"{gpu.name} does not answer: {gpu.lost}", "sudo nvidia-smi --gpu-reset")]
    findings = [_control(topic, gpu, facts)]
    if gpu.mig:
        line = f"{gpu.name} is sliced by MIG: clocks and energy are those of the whole GPU"
        findings.append(Finding(topic, "note", line, f"sudo nvidia-smi -i {gpu.index} -mig 0"))
    if gpu.persistent is False:
        line = f"{gpu.name} is not in persistence mode: settings are lost when its last user exits"
        findings.append(Finding(topic, "note", line, f"sudo nvidia-smi -i {gpu.index} -pm 1"))
    if gpu.module_power_w is not None:
        module = f"{gpu.name} is a part of a module that draws {gpu.module_power_w:.0f} W"
        line = f"{module}; wattune measures and limits the GPU alone"
        findings.append(Finding(topic, "note", line, "measure the rest of the module by its own sensors"))
    if not gpu.has_counter:
        line = f"{gpu.name} has no energy counter: wattune adds up power samples, which is coarser"
        findings.append(Finding(topic, "note", line, "measure spans of 10 s or more"))
    return findings


def _control(topic: str, gpu: GpuExam, facts: Facts) -> Finding:
    """Judge by what this process may do: a diagnosis must not try to set anything."""
    if gpu.limit_settable == "not supported":
        line = f"{gpu.name} refuses power limits, as laptop GPUs do; its clocks may still be locked"
        return Finding(topic, "note", line, "wattune sweep --knob sm-clock")
    if facts.driver.may_set if facts.driver.emulated else facts.has_sys_admin:
        return Finding(topic, "ok", f"{gpu.name} can be measured and set")
    if facts.in_container:
        line = f"{gpu.name} can be measured but not set: this container lacks SYS_ADMIN"
        return Finding(topic, "problem", line, "docker run --cap-add SYS_ADMIN ...")
    line = f"{gpu.name} can be measured but not set: no permission"
    return Finding(topic, "problem", line, 'sudo env "PATH=$PATH" wattune …')


def _rapl(facts: Facts) -> Finding:
    if facts.rapl_readable:
        return Finding("CPU energy", "ok", "CPU package energy is readable (RAPL)")
    if facts.rapl_present:
        fix = "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"
        return Finding("CPU energy", "note", "only root may read the CPU package energy", fix)
    line = "this machine has no CPU energy counter (RAPL), as most virtual machines; it is reported as not measured"
    return Finding("CPU energy", "note", line, "sudo modprobe intel_rapl_msr")


def _emulator(facts: Facts) -> Finding:
    if facts.compiler:
        return Finding("emulator", "ok", f"the emulated NVML library can be built with {facts.compiler}")
    line = "no C compiler: `wattune simulate` cannot build its library"
    return Finding("emulator", "note", line, "sudo apt install gcc")


def _journal(facts: Facts) -> Finding:
    if isinstance(facts.abandoned, WattuneError):
        return Finding("journal", "problem", facts.abandoned.message, facts.abandoned.hint)
    if facts.abandoned:
        line = f"a process died and left settings on {', '.join(facts.abandoned)}"
        return Finding("journal", "problem", line, "wattune restore   # as root where it was another user's process")
    if facts.state_problem is not None:
        line = f"no GPU can be set, since the journal cannot be written: {facts.state_problem}"
        return Finding("journal", "problem", line, "make room, or point WATTUNE_STATE to a folder you can write")
    return Finding("journal", "ok", "no GPU was left with settings of a dead process")


def _claims(facts: Facts) -> list[Finding]:
    """Return a finding about each process that tunes a GPU now; one that is stopped keeps its settings on the GPU."""
    from wattune.cli.restore import holder_line, is_stopped

    return [
        Finding("claim", "problem", holder_line(holder), f"kill -CONT {holder.pid}")
        if is_stopped(holder)
        else Finding("claim", "ok", holder_line(holder))
        for holder in facts.held
    ]


def _abandoned(journal: Journal) -> tuple[str, ...] | WattuneError:
    """Return the GPUs that a process which died since this boot left set, without claiming them."""
    try:
        entries = journal.abandoned()
    except WattuneError as error:
        return error
    return tuple(
        name if entry is None else entry.device
        for name, entry in entries.items()
        if entry is None or entry.boot_id == boot_id()
    )


def _state_problem(folder: Path) -> str | None:
    """Return why the folder, or the nearest one above it that exists, cannot be written."""
    there = next((path for path in (folder, *folder.absolute().parents) if path.exists()), Path("/"))
    if not there.is_dir():
        return f"{there} is no folder"
    found = os.statvfs(there)
    if found.f_flag & os.ST_RDONLY:
        return f"{there} is on a read-only file system"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written by this user"
    if (found.f_blocks and not found.f_bavail) or (found.f_files and not found.f_favail):
        return f"the disk of {there} is full"
    return None


def bundle_text(facts: Facts, findings: Iterable[Finding], environment: Mapping[str, str]) -> str:
    """Return the report as JSON text, redacted as a whole."""
    report = {
        "wattune": __version__,
        "python": platform.python_version(),
        "system": {"kernel": platform.release(), "machine": platform.machine(), "libc": " ".join(platform.libc_ver())},
        "packages": {name: _version(name) for name in PACKAGES},
        "driver": _driver_facts(facts),
        "variables": {
            name: shape(environment.get(name)) for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "WATTUNE_NODE")
        },
        "permissions": _permissions(facts),
        "gpus": [_gpu_facts(asdict(gpu)) for gpu in facts.driver.gpus],
        "findings": [asdict(finding) for finding in findings],
    }
    return redacted(json.dumps(report, indent=2, default=str), _secrets()) + "\n"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _driver_facts(facts: Facts) -> dict[str, Any]:
    driver = facts.driver
    kernel = _DRIVER_FILE.read_text(errors="replace").splitlines()[0] if _DRIVER_FILE.exists() else None
    failure = None if driver.failure is None else driver.failure.message
    return {"version": driver.version, "emulated": driver.emulated, "kernel_module": kernel, "failure": failure}


def _permissions(facts: Facts) -> dict[str, Any]:
    nodes = sorted(Path("/dev").glob("nvidia*"))
    return {
        "root": os.geteuid() == 0,
        "sys_admin": facts.has_sys_admin,
        "container": facts.in_container,
        "device_nodes": {node.name: stat.filemode(node.stat().st_mode) for node in nodes if not node.is_dir()},
    }


def _gpu_facts(exam: dict[str, Any]) -> dict[str, Any]:
    """Return what the examination found and how each function of NVML answers."""
    from wattune.devices.nvml.probe import probe

    try:
        answers: Any = [asdict(answer) for answer in probe(exam["index"])]
    except WattuneError as error:
        answers = error.message
    return {**exam, "calls": answers}


def shape(value: str | None) -> str | None:
    """Return the form of a variable: numbers as they are, and the kind of anything else."""
    if value is None:
        return None
    kinds = {"GPU-": "a UUID", "MIG-": "a slice"}
    parts = [part.strip() for part in value.split(",")]
    shown = [
        part if re.fullmatch(r"-?\d{0,4}|PCI_BUS_ID|FASTEST_FIRST", part) else kinds.get(part[:4], "other text")
        for part in parts
    ]
    return ",".join(shown)


def _secrets() -> dict[str, str]:
    """Return what must not appear, with what appears in its place."""
    found = {str(Path.home()): "~", socket.gethostname(): "<host>", socket.getfqdn(): "<host>"}
    with suppress(KeyError, OSError):  # a user without a name, as in some containers
        found[getpass.getuser()] = "<user>"
    found[Path.home().name] = "<user>"
    kept = {"", "/", "root", "localhost", "~"}
    return {secret: word for secret, word in found.items() if secret not in kept}


def redacted(text: str, secrets: Mapping[str, str]) -> str:
    """Return text without secrets, credentials of URLs, addresses, and the identifying part of UUIDs."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(secret)}(?![\w-])", secrets[secret], text)
    text = re.sub(r"://[^/\s\"]*@", "://<redacted>@", text)
    text = re.sub(r"(?i)\b(\w*(?:password|passwd|secret|token|key))=[^\s&\"']+", r"\1=<redacted>", text)
    text = re.sub(r"/home/[^/\s\"]+", "/home/<user>", text)
    text = re.sub(r"\b((?:GPU|MIG)-[0-9a-fA-F]{8})-[0-9a-fA-F-]+", r"\1-…", text)
    return re.sub(r"\b\d{1,3}(?:\.\d{1,3}){3}\b", "<address>", text)
