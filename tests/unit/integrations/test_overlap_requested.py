"""What a program is refused when it does not run the model that `wattune kernels measure` names."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

from fakes import FakeGpu
from overlap_samples import LateTransport, sample_input, whole_blocks
from wattune.core.codec import to_json
from wattune.core.errors import InputError
from wattune.integrations.overlap import OverlapExecutor, SequenceParallelBlock, measured_if_asked
from wattune.integrations.overlap.requested import check_executor
from wattune.levels.overlap.trial_file import MeasureRequest, model_of

LAYOUT = "llama3.2-3b:layers=2,width=16,heads=4,key_heads=4,inner=24 tp2 4x4"


def executor(blocks=None, *, nanobatches=2):
    return OverlapExecutor(blocks or whole_blocks(2), {"tp": LateTransport()}, nanobatches=nanobatches)


def test_an_executor_of_the_model_is_taken():
    check_executor(executor(), [sample_input(4)], model_of(LAYOUT, nanobatches=2), ranks=2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ranks": 4}, "are 2 GPUs, not 4"),
        ({"executor": executor(nanobatches=4)}, "splits microbatches into 4, and --nanobatches is 2"),
        ({"inputs": sample_input(6)}, "input is 6×4×16, and a microbatch of the command on this rank has 4 samples"),
        ({"inputs": sample_input(4, tokens=8)}, "4 samples of 4×16"),
        ({"layout": LAYOUT.replace("tp2", "tp2 sp")}, "4 samples of 2×16"),
        ({"layout": LAYOUT.replace("tp2", "cp2 tp2"), "ranks": 4, "inputs": sample_input(4, tokens=2)}, "fwd_qkv"),
        (
            {"executor": executor([SequenceParallelBlock(block) for block in whole_blocks(2)])},
            r"not of llama3\.2-3b.* has no slot",
        ),
    ],
)
def test_another_layout_or_size_is_refused_with_the_reason(changes, words):
    wanted = {"executor": executor(), "inputs": sample_input(4), "layout": LAYOUT, "ranks": 2} | changes
    with pytest.raises(InputError, match=words):
        check_executor(
            wanted["executor"], [wanted["inputs"]], model_of(wanted["layout"], nanobatches=2), ranks=wanted["ranks"]
        )


def test_a_refusal_is_one_line_with_a_hint_and_ends_the_program(tmp_path, monkeypatch, capsys):
    assert measured_if_asked(executor(), [sample_input(4)]) is False
    request = MeasureRequest(
        layout=LAYOUT,
        nanobatches=2,
        search="random",
        budget=1,
        seed=0,
        epsilon=0.005,
        passes=False,
        trials=str(tmp_path / "t.jsonl"),
        device=None,
    )
    monkeypatch.setenv("WATTUNE_KERNELS", json.dumps(to_json(request)))
    with pytest.raises(SystemExit) as ended:
        measured_if_asked(executor(), [sample_input(4)], gpu=FakeGpu())
    assert ended.value.code == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error: tp 2, cp 1, pp 1 and dp 1 are 2 GPUs, not 1")
    assert lines[1].startswith("hint: ")
