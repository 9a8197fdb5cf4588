from __future__ import annotations

from collections.abc import Iterable

import pytest

from wattune.core.errors import InputError
from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload, network_named, workload_names
from wattune.workloads.graph import GRAPHS, graph_kinds, graph_network
from wattune.workloads.operation import NetworkOp, merged, training_phases
from wattune.workloads.transformer import TRANSFORMERS


def operations(name: str) -> tuple[NetworkOp, ...]:
    return network_named(name).operations()


def parameters(found: Iterable[NetworkOp]) -> float:
    return sum(operation.parameters for operation in found)


def multiplied(found: Iterable[NetworkOp]) -> float:
    """What published counts count: products of matrices and convolutions, a multiply-add as two."""
    return sum(operation.flops for operation in found if operation.multiplies or operation.name.endswith("depthwise"))


# Parameters in millions and forward GFLOP per sample, a multiply-add counted as two: the papers and the model cards of
# common libraries. BERT and GPT-2 as counted by a tracer, with the projection to the vocabulary; GPT-2 less the half of
# the attention (12 layers of 4·1024²·768) that a causal network need not do.
@pytest.mark.parametrize(
    ("name", "parameters_m", "gflop"),
    [
        ("resnet18", 11.69, 3.64),
        ("resnet50", 25.56, 8.2),
        ("resnet101", 44.55, 15.6),
        ("resnet152", 60.19, 23.1),
        ("vgg16", 138.36, 31.0),
        ("vgg19", 143.67, 39.3),
        ("inception3", 27.16, 2 * 5.72),
        ("shufflenet2", 2.279, 2 * 0.146),
        ("bert-base", 109.5, 22.35 + 6.15),
        ("gpt2", 124.4, 2333 / 8 - 19.3),
    ],
)
def test_sizes_agree_with_published_ones(name: str, parameters_m: float, gflop: float) -> None:
    found = operations(name)
    assert parameters(found) / 1e6 == pytest.approx(parameters_m, rel=0.001)
    assert multiplied(found) / 1e9 == pytest.approx(gflop, rel=0.01)


def test_inception_without_its_second_classifier_has_the_parameters_of_inference() -> None:
    found = [operation for operation in operations("inception3") if not operation.name.startswith("auxiliary")]
    assert parameters(found) / 1e6 == pytest.approx(23.83, rel=0.001)  # Szegedy et al. 2016: 5 billion multiply-adds
    assert multiplied(found) / 2e9 == pytest.approx(5.71, rel=0.002)


# Parameters: BERT-large 335 M (the released weights with the pooler); GPT-3 175 B (Brown et al. 2020, table 2.1); the
# model cards of Llama 3.2 3B (3.21 B), Llama 3.3 70B (70.6 B) and Qwen3 1.7B (1.7 B, of which 1.4 B are not embedding);
# Zaremba et al. 2014 (66 M for the large LSTM); MLPerf's NCF (31,832,577); DeepSpeech2 by the public code's shapes.
@pytest.mark.parametrize(
    ("name", "published", "tolerance"),
    [
        ("bert-large", 335.1e6, 0.001),
        ("gpt3-175b", 175e9, 0.003),
        ("llama3.2-3b", 3.21e9, 0.001),
        ("llama3.3-70b", 70.6e9, 0.001),
        ("qwen3-1.7b", 1.72e9, 0.001),
        ("lstm", 66e6, 0.001),
        ("ncf", 31_832_577, 0.0),
        ("deepspeech2", 86.6e6, 0.001),
    ],
)
def test_parameters_agree_with_published_ones(name: str, published: float, tolerance: float) -> None:
    assert parameters(operations(name)) == pytest.approx(published, rel=tolerance)


@pytest.mark.parametrize("name", ["gpt3-175b", "llama3.2-3b", "llama3.3-70b", "qwen3-1.7b"])
def test_a_token_costs_two_operations_per_weight_that_multiplies_and_its_attention(name: str) -> None:
    """Kaplan et al. 2020: 2·N + 2·layers·context·width forward; a causal token sees half of the context on average."""
    shape = TRANSFORMERS[name]
    weights = parameters(operations(name)) - shape.embedding_parameters + shape.vocabulary * shape.width
    attention = 2 * shape.layers * shape.sequence * shape.query_width
    if not shape.tied:
        weights -= shape.vocabulary * shape.width
    assert multiplied(operations(name)) / shape.sequence == pytest.approx(2 * weights + attention, rel=0.001)


# The leaderboards of Dwivedi et al. 2020, networks of the hidden widths in the benchmark's settings.
@pytest.mark.parametrize(
    ("kind", "data", "layers", "width", "published"),
    [
        ("gcn", "zinc", 16, 172, 505_079),
        ("graphsage", "zinc", 16, 101, 505_341),
        ("gin", "zinc", 16, 124, 509_549),
        ("gat", "zinc", 16, 176, 531_345),
        ("monet", "zinc", 16, 101, 504_013),
        ("gcn", "mnist", 4, 146, 101_365),
        ("graphsage", "mnist", 4, 90, 104_337),
        ("gin", "mnist", 4, 110, 105_434),
        ("gat", "mnist", 4, 152, 110_400),
        ("monet", "mnist", 4, 90, 104_049),
        ("gatedgcn", "mnist", 4, 70, 104_217),
        ("gatedgcn", "cifar10", 4, 70, 104_357),
    ],
)
def test_graph_networks_have_the_published_parameters(
    kind: str, data: str, layers: int, width: int, published: int
) -> None:
    assert parameters(graph_network(kind, GRAPHS[data], layers=layers, width=width)) == published


@pytest.mark.parametrize("kind", graph_kinds())
def test_the_usual_graph_networks_have_about_a_hundred_thousand_parameters(kind: str) -> None:
    assert parameters(graph_network(kind, GRAPHS["zinc"])) == pytest.approx(105_000, rel=0.05)


# MB per image, each tensor moved once per layer; the first layer of VGG (26 MB) has no gradient of its input.
@pytest.mark.parametrize(("name", "forward_mb", "backward_mb"), [("resnet50", 370, 564), ("vgg16", 238, 416 - 13)])
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
    # Less where the first layer is large, whose input needs no gradient; more where attention computes scores again.
    assert 2.85 * forward < workload.flops < 3.1 * forward


@pytest.mark.parametrize("name", workload_names())
@pytest.mark.parametrize("gpu", ["a100", "v100"])
def test_merging_hardly_changes_time_and_energy(name: str, gpu: str) -> None:
    model, workload = load_model(gpu), make_workload(name)
    network = network_named(name)
    phases = training_phases(
        network.operations(), batch_size=workload.batch_size or 0, pipe=network.pipe, optimizer=network.optimizer
    )
    exact = tabulate(model, Workload(name=name, phases=phases))[0]
    short = tabulate(model, workload)[0]
    assert short.iteration_s == pytest.approx(exact.iteration_s, rel=0.01)
    assert short.iteration_j == pytest.approx(exact.iteration_j, rel=0.01)


def test_merging_preserves_totals_and_separates_kinds() -> None:
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


def test_half_precision_keeps_the_optimizers_weights_in_full() -> None:
    full, half = make_workload("bert-base"), make_workload("bert-base", pipe=Pipe.FP16)
    assert half.phases[-1] == full.phases[-1]
    assert {phase.pipe for phase in half.phases} == {Pipe.FP16, Pipe.FP32}


def test_adam_moves_two_values_of_state_and_sgd_one() -> None:
    bert, resnet = make_workload("bert-base"), make_workload("resnet50")
    assert bert.phases[-1].dram_bytes == 28 * (bert.parameters or 0)
    assert resnet.phases[-1].dram_bytes == 20 * (resnet.parameters or 0)


@pytest.mark.parametrize("name", ["gpt3-175b", "llama3.2-3b"])
@pytest.mark.parametrize("stages", [1, 2, 5, 8])
def test_the_stages_of_a_pipeline_add_up_to_the_network(name: str, stages: int) -> None:
    whole = make_workload(name, batch_size=2)
    parts = [make_workload(f"{name}@{stage}/{stages}:2") for stage in range(1, stages + 1)]
    forward = [sum(phase.flops for phase in part.phases if phase.name.startswith("forward")) for part in parts]
    assert sum(forward) == pytest.approx(sum(phase.flops for phase in whole.phases if phase.name[0] == "f"))
    shape = TRANSFORMERS[name]
    copied = shape.vocabulary * shape.width if stages > 1 else 0  # the last stage holds tied weights once more
    assert sum(part.parameters or 0 for part in parts) == (whole.parameters or 0) + copied


def test_a_stage_of_gpt3_holds_its_share_of_the_layers() -> None:
    middle = make_workload("gpt3-175b@4/8")
    assert middle.name == "gpt3-175b@4/8:1"
    assert middle.parameters == pytest.approx(12 * 12 * 12288**2, rel=0.001)  # Brown et al.: 12·width² per layer
    quarter = make_workload("gpt3-175b@4/8", shards=4)
    assert quarter.parameters == pytest.approx((middle.parameters or 0) / 4, rel=0.001)
    assert quarter.flops == pytest.approx(middle.flops / 4, rel=0.01)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt3-175b@", "names no stage"),
        ("gpt3-175b@3", "names no stage"),
        ("gpt3-175b@0/8", "names no stage"),
        ("gpt3-175b@9/8", "no stage 9 of 8"),
        ("gpt3-175b@1/97", "96 layers do not fill 97 stages"),
        ("resnet50@1/2", "not divided"),
    ],
)
def test_an_impossible_stage_is_refused(name: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as error:
        make_workload(name)
    assert error.value.hint


@pytest.mark.parametrize("name", ["resnet50:128", "ResNet-50:128", " resnet_50:128 "])
def test_the_batch_size_may_follow_the_name(name: str) -> None:
    workload = make_workload(name)
    assert workload == make_workload("resnet50", batch_size=128)
    assert (workload.name, workload.batch_size) == ("resnet50:128", 128)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="no workload 'resnet51'") as error:
        make_workload("resnet51")
    assert error.value.hint is not None
    assert error.value.hint.startswith("did you mean resnet50 or")
    assert all(name in error.value.hint for name in workload_names())


@pytest.mark.parametrize("name", ["resnet50:", "resnet50:0", "resnet50:-3", "resnet50:1.5", "resnet50:many"])
def test_an_impossible_batch_size_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="no whole batch size"):
        make_workload(name)


def test_two_batch_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="contradict"):
        make_workload("resnet50:64", batch_size=32)
    with pytest.raises(InputError, match="from 1 to"):
        make_workload("resnet50", batch_size=0)
