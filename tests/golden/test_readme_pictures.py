"""The pictures of the README show what wattune computes today."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(180)
def test_the_pictures_of_the_readme_are_current(tmp_path):
    tool = ROOT / "tools" / "readme_pictures.py"
    subprocess.run([sys.executable, str(tool), str(tmp_path)], check=True, capture_output=True, timeout=170)
    for picture in ("frontier.svg", "pipeline.svg"):
        kept = (ROOT / "docs" / "pictures" / picture).read_text(encoding="utf-8")
        assert (tmp_path / picture).read_text(encoding="utf-8") == kept, "run tools/readme_pictures.py"
        assert f"docs/pictures/{picture}" in (ROOT / "README.md").read_text(encoding="utf-8")
