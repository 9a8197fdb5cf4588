"""The catalogue beside made tables of training: a GPU agrees with what it gave itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune_bench.physics.training import _STAGE, judge_training, judge_volta, training_savings


def stage_file(folder: Path, gpu: str) -> Path:
    """A stage profile as a simulated GPU would have given it, with an operation that nobody knows."""
    rows = ["stage,instruction,frequency,time,energy", "0,sideways,1200,1.0,300.0"]
    for name, workload in _STAGE.items():
        table = tabulate(load_model(gpu), workload)[0]
        rows += [
            f"0,{name},{mhz},{table.iteration_s[place]},{table.iteration_j[place]}"
            for place, mhz in enumerate(table.sm_mhz)
            if mhz >= 855
        ]
    file = folder / "stage_profile_gpt3-175b_a100.csv"
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return file


@pytest.mark.parametrize("gpu", ["a100", "a100-80gb"])
def test_a_gpu_agrees_with_its_own_stages(tmp_path: Path, gpu: str) -> None:
    file = stage_file(tmp_path, gpu)
    own = [judgement for judgement in judge_training([file]) if judgement.dataset.startswith(f"{gpu} ")]
    assert [judgement.quantity for judgement in own] == ["time", "power"]
    for judgement in own:
        assert judgement.goal is None
        assert np.abs(judgement.errors).max() < 1e-9
    savings = [row for row in training_savings([file]) if row["dataset"] == f"{gpu} (simulated)"]
    assert len(savings) == 3
    for row in savings:
        assert row["ours"] == pytest.approx(np.mean([row["published_low"], row["published_high"]]), abs=0.2)
    assert [row["ours"] for row in savings] == sorted(row["ours"] for row in savings)


def test_other_files_give_no_rows(tmp_path: Path) -> None:
    file = stage_file(tmp_path, "a100").rename(tmp_path / "stage_profile_other.csv")
    assert judge_training([file]) == []
    assert training_savings([file]) == []


def test_the_v100_has_the_power_that_was_published() -> None:
    power, energy = judge_volta()
    for judgement in (power, energy):
        assert np.abs(judgement.errors).mean() < 0.05
