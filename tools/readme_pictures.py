"""Draw the pictures of the README again: `python tools/readme_pictures.py [FOLDER]`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from wattune.cli.main import run

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"


def draw(folder: Path) -> None:
    """Write frontier.svg and pipeline.svg into a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        os.environ |= {"WATTUNE_STORE": str(place / "history.db"), "WATTUNE_STATE": str(place / "state")}
        profile, plan = place / "stages.csv", place / "plan.json"
        example = [sys.executable, str(ROOT / "examples" / "stage_profile.py")]
        profile.write_bytes(subprocess.run(example, check=True, capture_output=True).stdout)
        sweep = ("sweep", "--device", "sim:a100", "--workload", "resnet50", "--points", "24", "--even")
        planned = ("pipeline", "plan", "--profile", str(profile), "--microbatches", "8", "--blocking-power", "75")
        for words in (
            (*sweep, "--report", str(folder / "frontier.svg")),
            (*planned, "--out", str(plan)),
            ("pipeline", "show", str(plan), "--svg", str(folder / "pipeline.svg")),
        ):
            if run(list(words)) != 0:
                raise SystemExit(f"wattune {' '.join(words)} failed")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES
    target.mkdir(parents=True, exist_ok=True)
    draw(target)
