"""The arms of `wattune bench live`: the command of each, and where it says what it saved."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattune.benchmarks.live.truth import Claim

NONE, RUN, TUNED, CALLBACK = "none", "run", "tuned", "callback"
HOLD, JOB, GPOEO, ZEUS = "sweep+hold", "job", "gpoeo", "zeus"
ARMS = (NONE, RUN, TUNED, CALLBACK, HOLD, JOB, GPOEO, ZEUS)
OURS = (RUN, TUNED, CALLBACK, HOLD, JOB)
"""The arms whose claims and limits are judged: GPOEO's rule and Zeus stand beside them."""
LIVE_ARMS = (RUN, TUNED, CALLBACK)
"""Those that search while the program trains."""
TUNERS = (*OURS, GPOEO)
"""Those whose processor time is wattune's."""

PROGRAM = Path(__file__).with_name("training.py")
JOB_NAME = "live"
SWEEP_POINTS, SWEEP_SHARE = 6, 8
"""Settings that the sweep tries, and the part of the program's steps that each of its runs does: 1/8."""
_WATTUNE = (sys.executable, "-P", "-m", "wattune")

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How the program is started."""

    steps: int
    width: int
    seed: int
    slowdown: float
    folder: Path
    """For its stamps and its claim."""
    zeus: Path | None = None

    @property
    def claim_file(self) -> Path:
        return self.folder / "claim.json"

    def command(self, by: str = NONE, *, steps: int | None = None) -> list[str]:
        numbers = {
            "--steps": steps or self.steps,
            "--stamps": self.folder,
            "--by": by,
            "--slowdown": self.slowdown,
            "--claim": self.claim_file,
            "--width": self.width,
            "--seed": self.seed,
            **({} if self.zeus is None else {"--zeus": self.zeus}),
        }
        return [sys.executable, str(PROGRAM), *(str(word) for pair in numbers.items() for word in pair)]


def command_of(arm: str, training: Training, *, setting: str | None = None) -> list[str]:
    """Return the command of an arm; a sweep has chosen the setting of the one that holds."""
    limit = f"{100 * training.slowdown:g}%"
    if arm in (RUN, GPOEO):
        policy = "gpoeo" if arm == GPOEO else "wattune"
        options = ["--json", "--max-slowdown", limit, "--policy", policy, "--require-gpu"]
        return [*_WATTUNE, "run", *options, "--", *training.command()]
    if arm == HOLD and setting is not None:
        return [*_WATTUNE, "hold", setting, "--json", "--require-gpu", "--", *training.command()]
    if arm == JOB:
        sizes = ["--batch-sizes", "32", "--default", "32", "--target", "0.999"]
        metric = ["--metric-pattern", "accuracy: ([0-9.]+)", "--objective", f"energy:{limit}", "--linger", "2"]
        return [
            *_WATTUNE,
            "job",
            "run",
            JOB_NAME,
            *sizes,
            *metric,
            "--json",
            "--require-gpu",
            "--",
            *training.command(),
        ]
    return training.command(arm if arm in (TUNED, CALLBACK, ZEUS) else NONE)


def sweep_command(training: Training) -> list[str]:
    """Return the command that looks for the setting to hold."""
    steps = max(training.steps // SWEEP_SHARE, 2)
    options = ["--json", "--points", str(SWEEP_POINTS), "--max-slowdown", f"{100 * training.slowdown:g}%"]
    return [*_WATTUNE, "sweep", *options, "--require-gpu", "--", *training.command(steps=steps)]


def show_job_command() -> list[str]:
    """Return the command that prints what the runs of the job saved."""
    return [*_WATTUNE, "job", "show", JOB_NAME, "--json"]


def setting_to_hold(sweep: Document) -> str | None:
    """Return the setting that a sweep recommends; None where it found none that saves."""
    recommended = sweep.get("recommended")
    return None if recommended is None else str(recommended["setting"])


def claim_of(arm: str, document: Document | None) -> Claim:
    """Read what an arm says of its run; `document` is its JSON, for the arm that holds that of the sweep."""
    if document is None or arm in (NONE, ZEUS):
        return Claim()
    if arm == HOLD:
        return _named(document.get("recommended") or {})
    if arm == JOB:
        return _of_job(document)
    return _named(document)


def _named(figures: Document) -> Claim:
    """Read figures under the names that `wattune run --json` gives them."""
    return Claim(
        saving_percent=figures.get("saving_percent"),
        saving_error_percent=figures.get("saving_error_percent"),
        slowdown_percent=figures.get("slowdown_percent"),
        slowdown_error_percent=figures.get("slowdown_error_percent"),
    )


def _of_job(document: Document) -> Claim:
    """Read `wattune job show --json`: all runs against as many default runs."""
    parts: Sequence[Document] = document.get("parts", ())
    if not parts:
        return Claim()
    own = parts[0]
    return Claim(
        saving_percent=own.get("energy_saving_percent"),
        saving_error_percent=own.get("energy_saving_error_percent"),
        slowdown_percent=own.get("slowdown_percent"),
        slowdown_error_percent=own.get("slowdown_error_percent"),
    )


def parse_document(text: str) -> Document | None:
    """Read the JSON document that a command printed; None where there is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
