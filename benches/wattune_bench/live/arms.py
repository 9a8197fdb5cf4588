"""The arms of `wattune bench live`: the command of each, and where it says what it saved."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NONE, RUN, TUNED, CALLBACK = "none", "run", "tuned", "callback"
HOLD, JOB, GPOEO, ZEUS = "sweep+hold", "job", "gpoeo", "zeus"
ARMS = (NONE, RUN, TUNED, CALLBACK, HOLD, JOB, GPOEO, ZEUS)
SWEEP, HELD = "sweep", "hold"
"""The two that make claims in one arm: the sweep of the setting that it found, and `hold` of what that changed."""
OURS = (RUN, TUNED, CALLBACK, SWEEP, HELD, JOB)
"""Those that are judged: GPOEO's rule and Zeus stand beside them."""
SEARCHING = (RUN, TUNED, CALLBACK)
"""Those that search while the program trains."""

PROGRAM = Path(__file__).with_name("training.py")
JOB_NAME = "live"
SWEEP_POINTS, SWEEP_SHARE = 6, 8
"""Settings that the sweep tries, and the part of the program's steps that each of its runs does: 1/8."""
_WATTUNE = (sys.executable, "-P", "-m", "wattune")

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCase:
    """One run of the bench."""

    gpu: str
    switching: str
    arm: str
    run: int
    seed: int
    workload: str
    """What the simulated GPU does for a step."""
    steps: int
    width: int
    """Of the network: what the host does for a step."""
    slowdown: float
    seconds: float

    @property
    def limit(self) -> str:
        return f"{100 * self.slowdown:g}%"

    def program(self, folder: Path, *, by: str = NONE, zeus: Path | None = None) -> list[str]:
        """Return the command of the program, whose stamps and claim go to the folder."""
        options = {
            "--by": by,
            "--slowdown": self.slowdown,
            "--width": self.width,
            "--seed": self.seed,
            "--folder": folder,
        }
        words = [str(word) for pair in options.items() for word in pair]
        return [sys.executable, str(PROGRAM), *words, *(["--zeus", str(zeus)] if zeus else [])]


def command_of(case: LiveCase, folder: Path, *, setting: str | None = None, zeus: Path | None = None) -> list[str]:
    """Return the command of an arm; a sweep has chosen the setting of the one that holds."""
    program = case.program(folder)
    if case.arm in (RUN, GPOEO):
        policy = "gpoeo" if case.arm == GPOEO else "wattune"
        return [*_WATTUNE, "run", "--json", "--max-slowdown", case.limit, "--policy", policy, "--", *program]
    if case.arm == HOLD and setting is not None:
        return [*_WATTUNE, "hold", setting, "--json", "--", *program]
    if case.arm == JOB:
        sizes = ["--batch-sizes", "32", "--default", "32", "--target", "0.999", "--objective", f"energy:{case.limit}"]
        metric = ["--metric-pattern", "accuracy: ([0-9.]+)", "--linger", "2"]
        return [*_WATTUNE, "job", "run", JOB_NAME, *sizes, *metric, "--json", "--", *program]
    return case.program(folder, by=case.arm, zeus=zeus) if case.arm in (TUNED, CALLBACK, ZEUS) else program


def sweep_command(case: LiveCase, folder: Path) -> list[str]:
    """Return the command that looks for the setting to hold, whose program is the one that is held then."""
    options = ["--json", "--points", str(SWEEP_POINTS), "--max-slowdown", case.limit]
    return [*_WATTUNE, "sweep", *options, "--", *case.program(folder)]


SHOW_JOB = (*_WATTUNE, "job", "show", JOB_NAME, "--json")
"""The command that prints what the runs of the job saved."""


def setting_to_hold(sweep: Document | None) -> str | None:
    """Return the setting that a sweep recommends; None where it found none that saves."""
    recommended = (sweep or {}).get("recommended")
    return None if recommended is None else str(recommended["setting"])


@dataclass(frozen=True, slots=True)
class Claim:
    """A value that a tool says, and the half-width of its 95 % interval; None where it gives none."""

    value: float
    error: float | None = None

    def holds(self, true: float) -> bool:
        """Return whether the interval holds the truth; a claim without an interval does not."""
        return self.error is not None and abs(self.value - true) <= self.error


SAVING, SLOWDOWN, ENERGY = "saving_percent", "slowdown_percent", "step_energy_j"
QUANTITIES = (SAVING, SLOWDOWN, ENERGY)


Claims = Mapping[str, Claim]
"""What is claimed of a run, by the quantity; what is unknown is left out."""


def claims_of(
    arm: str,
    *,
    printed: Document | None = None,
    swept: Document | None = None,
    job: Document | None = None,
    inside: Document | None = None,
) -> dict[str, Claims]:
    """Read what is claimed, by who claims it, from what the command of an arm printed and its other documents."""
    if arm == HOLD:
        return {SWEEP: _named((swept or {}).get("recommended")), HELD: _of_hold(printed or {})}
    if arm == JOB:
        part = ((job or {}).get("parts") or [{}])[0]
        wanted = ("energy_saving", "slowdown")  # its `saving` is of the job's own objective
        return {JOB: _named({name.removeprefix("energy_"): part[name] for name in part if name.startswith(wanted)})}
    return {arm: _named(printed if arm in (RUN, GPOEO) else inside if arm in (TUNED, CALLBACK) else None)}


def _named(figures: Document | None) -> Claims:
    """Read saving and slowdown under the names of `wattune run --json`."""
    pairs = ((SAVING, "saving_error_percent"), (SLOWDOWN, "slowdown_error_percent"))
    found = figures or {}
    return {name: Claim(found[name], found.get(error)) for name, error in pairs if found.get(name) is not None}


def _of_hold(document: Document) -> Claims:
    """Read the energy of a step that `wattune hold --json` measured, and its changes against the sweep's default."""
    found: dict[str, Claim] = {}
    against, step = document.get("against_default") or {}, (document.get("steps") or {}).get("per_step")
    if against.get("energy_percent") is not None:
        found[SAVING] = Claim(-against["energy_percent"], against.get("energy_error_percent"))
    if against.get("time_percent") is not None:
        found[SLOWDOWN] = Claim(against["time_percent"], against.get("time_error_percent"))
    return found | ({} if step is None else {ENERGY: Claim(step["energy_j"], step.get("energy_error_j"))})


def parse_document(text: str) -> Document | None:
    """Read the JSON document that a command printed; None where there is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
