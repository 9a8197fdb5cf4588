from __future__ import annotations

import pytest

from wattune.core.errors import InputError
from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload, workload_names
from wattune.workloads.convolutional import resnet, vgg
from wattune.workloads.merge import merged
from wattune.workloads.operation import Operation, training_phases
from wattune.workloads.transformer import transformer


def operations(name: str) -> tuple[Operation, ...]:
    family = resnet if name.startswith("resnet") else vgg if name.startswith("vgg") else transformer
    return family(name)


# Parameters in millions and forward GFLOP per sample, a multiply-add counted as two: the model cards of the papers and
# of common libraries; the transformers' as counted by a tracer, BERT's with its projection to the vocabulary.
@pytest.mark.parametrize(
    ("name", "parameters_m", "gflop"),
    [
        ("resnet18", 11.69, 3.64),
        ("resnet50", 25.56, 8.2),
        ("resnet152", 60.19, 23.1),
        ("vgg16", 138.36, 31.0),
        ("vgg19", 143.67, 39.3),
        ("bert-base", 109.5, 22.35 + 6.15),
        ("gpt2", 124.4, 2333 / 8),
    ],
)
def test_sizes_agree_with_published_ones(name: str, parameters_m: float, gflop: float) -> None:
    found = operations(name)
    assert sum(operation.parameters for operation in found) / 1e6 == pytest.approx(parameters_m, rel=0.001)
    multiplied = sum(operation.flops for operation in found if operation.multiplies)
    assert multiplied / 1e9 == pytest.approx(gflop, rel=0.01)


@pytest.mark.parametrize(("name", "forward_mb", "backward_mb"), [("resnet50", 370, 564), ("vgg16", 238, 416)])
def test_traffic_agrees_with_a_count_of_every_tensor(name: str, forward_mb: float, backward_mb: float) -> None:
    phases = make_workload(name, batch_size=64).phases
    for part, expected in (("forward", forward_mb), ("backward", backward_mb)):
        moved = sum(phase.dram_bytes for phase in phases if phase.name.startswith(part))
        assert moved / 64 / 1e6 == pytest.approx(expected, rel=0.07)


@pytest.mark.parametrize("name", workload_names())
def test_training_is_forward_backward_and_optimizer(name: str) -> None:
    workload = make_workload(name)
    passes = [phase.name.split("/")[0] for phase in workload.phases]
    assert passes == sorted(passes, key=("forward", "backward", "optimizer").index)
    assert set(passes) == {"forward", "backward", "optimizer"}
    assert len(passes) <= 60
    forward = sum(operation.flops for operation in operations(name)) * (workload.batch_size or 0)
    assert workload.flops == pytest.approx(3 * forward, rel=0.02)


@pytest.mark.parametrize("name", workload_names())
@pytest.mark.parametrize("gpu", ["a100", "v100"])
def test_merging_hardly_changes_time_and_energy(name: str, gpu: str) -> None:
    model, workload = load_model(gpu), make_workload(name)
    phases = training_phases(operations(name), batch_size=workload.batch_size or 0, pipe=Pipe.TF32)
    exact = tabulate(model, Workload(name=name, phases=phases))[0]
    short = tabulate(model, workload)[0]
    assert short.iteration_s == pytest.approx(exact.iteration_s, rel=0.01)
    assert short.iteration_j == pytest.approx(exact.iteration_j, rel=0.01)


def test_merging_keeps_totals_and_kinds_apart() -> None:
    alternating = tuple(
        Phase(name=f"forward/{index}", flops=1e12 if index % 2 else 1e6, dram_bytes=1e8, launches=1)
        for index in range(100)
    )
    short = merged(alternating, 3)
    assert len(short) == 6
    for field in ("flops", "dram_bytes", "launches"):
        total = sum(getattr(phase, field) for phase in alternating)
        assert sum(getattr(phase, field) for phase in short) == pytest.approx(total)


def test_half_precision_moves_half_the_activations() -> None:
    full, half = make_workload("resnet50"), make_workload("resnet50", pipe=Pipe.FP16)
    assert half.dram_bytes / full.dram_bytes == pytest.approx(0.5, abs=0.02)
    assert half.flops == full.flops


@pytest.mark.parametrize("name", ["resnet50:128", "ResNet-50:128", " resnet_50:128 "])
def test_the_batch_size_may_follow_the_name(name: str) -> None:
    workload = make_workload(name)
    assert workload == make_workload("resnet50", batch_size=128)
    assert (workload.name, workload.batch_size) == ("resnet50:128", 128)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="no workload 'resnet51'") as error:
        make_workload("resnet51")
    assert error.value.hint is not None
    assert error.value.hint.startswith("did you mean resnet50?")


@pytest.mark.parametrize("name", ["resnet50:", "resnet50:0", "resnet50:-3", "resnet50:1.5", "resnet50:many"])
def test_a_batch_size_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="no whole batch size"):
        make_workload(name)


def test_two_batch_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="contradict"):
        make_workload("resnet50:64", batch_size=32)
    with pytest.raises(InputError, match="above 0"):
        make_workload("resnet50", batch_size=0)
