"""The suite for real GPUs runs on an emulated one, and says what differs."""

import os
import subprocess
import sys
from pathlib import Path

SUITE = Path(__file__).parents[1] / "hardware"


def test_the_suite_for_real_gpus_runs_on_an_emulated_one(emulated_library, tmp_path):
    simulate = [
        sys.executable,
        "-m",
        "wattune",
        "simulate",
        "--gpu",
        "a100",
        "--fault",
        "nvmlDeviceGetTemperatureV:deprecated",
    ]
    suite = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "reader or reading or limit",
        str(SUITE),
    ]
    environment = {
        **os.environ,
        "WATTUNE_CACHE": str(emulated_library.parent.parent),
        "WATTUNE_STATE": str(tmp_path / "state"),
        "WATTUNE_STORE": str(tmp_path / "store.db"),
        "WATTUNE_CONFIG": str(tmp_path / "none.toml"),
    }
    done = subprocess.run([*simulate, "--", *suite], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nvmlDeviceGetTemperatureV: Deprecated here, ok on the emulated GPU" in done.stdout
