"""Every example prints the text of the file beside it. `python tests/golden/test_examples.py` writes those files."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def output(example, home):
    """Run an example and return what it prints; it may not write to standard error."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("WATTUNE_")},
        "WATTUNE_STATE": str(home / "state"),
        "WATTUNE_STORE": str(home / "history.db"),
        "WATTUNE_CONFIG": str(home / "none.toml"),
        "PYTHONWARNINGS": "error",
        "PYTHONIOENCODING": "utf-8",
    }
    command = [sys.executable, str(example)]
    done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("name", sorted(file.name for file in EXAMPLES.glob("*.py")))
def test_an_example_prints_what_it_should(name, tmp_path):
    if "import torch" in (EXAMPLES / name).read_text(encoding="utf-8"):
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")
    expected = (EXAMPLES / name).with_suffix(".txt").read_text(encoding="utf-8")
    assert output(EXAMPLES / name, tmp_path) == expected
    assert "simulated" in expected
    assert list(tmp_path.iterdir()) == []


if __name__ == "__main__":
    for example in sorted(EXAMPLES.glob("*.py")):
        with tempfile.TemporaryDirectory() as home:
            example.with_suffix(".txt").write_text(output(example, Path(home)), encoding="utf-8")
