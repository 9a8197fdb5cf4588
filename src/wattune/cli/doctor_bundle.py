"""The report of `wattune doctor --bundle`: what a maintainer needs to know, without names and secrets."""

from __future__ import annotations

import getpass
import importlib.metadata
import json
import os
import platform
import re
import socket
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattune._version import __version__
from wattune.core.errors import WattuneError

if TYPE_CHECKING:
    from wattune.cli.doctor import Facts, Finding

PACKAGES = ("nvidia-ml-py", "numpy", "scipy", "click", "rich", "SQLAlchemy", "torch")
_DRIVER_FILE = Path("/proc/driver/nvidia/version")


def bundle_text(facts: Facts, findings: Iterable[Finding], environment: Mapping[str, str]) -> str:
    """Return the report as JSON text, redacted as a whole."""
    report = {
        "wattune": __version__,
        "python": platform.python_version(),
        "system": {"kernel": platform.release(), "machine": platform.machine(), "libc": " ".join(platform.libc_ver())},
        "packages": {name: _version(name) for name in PACKAGES},
        "driver": _driver(facts),
        "variables": {
            name: shape(environment.get(name)) for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "WATTUNE_NODE")
        },
        "permissions": _permissions(facts),
        "gpus": [_gpu(asdict(gpu)) for gpu in facts.driver.gpus],
        "findings": [asdict(finding) for finding in findings],
    }
    return redacted(json.dumps(report, indent=2, default=str), _secrets()) + "\n"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _driver(facts: Facts) -> dict[str, Any]:
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


def _gpu(exam: dict[str, Any]) -> dict[str, Any]:
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
