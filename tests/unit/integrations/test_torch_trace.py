"""Real models on the meta device, against what wattune counts from their shapes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch_models import LanguageModel, Llama, RecurrentModel, resnet50, vgg16  # noqa: E402

from wattune.core.errors import InputError  # noqa: E402
from wattune.core.workload import Pipe, Workload  # noqa: E402
from wattune.integrations.torch import Traced, trace  # noqa: E402
from wattune.physics.catalog import load_model  # noqa: E402
from wattune.physics.spend import tabulate  # noqa: E402
from wattune.workloads.catalog import make_workload  # noqa: E402
from wattune.workloads.operation import ADAM, SGD  # noqa: E402


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.zeros(batch, length, dtype=torch.long, device="meta")


def traced(name: str) -> Traced:
    with torch.device("meta"):
        match name:
            case "resnet50:64":
                return trace(resnet50(), torch.empty(64, 3, 224, 224), optimizer=SGD)
            case "bert-base:64":
                model = LanguageModel(layers=12, width=768, heads=12, vocabulary=30522, positions=512, causal=False)
                return trace(model, tokens(64, 128), optimizer=ADAM)
            case "gpt2:8":
                model = LanguageModel(layers=12, width=768, heads=12, vocabulary=50257, positions=1024, causal=True)
                return trace(model, tokens(8, 1024), optimizer=ADAM)
            case _:
                llama = Llama(layers=28, width=3072, heads=24, inner=8192, vocabulary=128256)
                return trace(llama, tokens(1, 4096), pipe=Pipe.FP16, optimizer=ADAM)


def of_pass(workload: Workload, name: str, field: str) -> float:
    return sum(getattr(phase, field) for phase in workload.phases if phase.name.startswith(name))


@pytest.mark.parametrize("name", ["resnet50:64", "bert-base:64", "gpt2:8", "llama3.2-3b:1"])
def test_a_trace_agrees_with_the_shapes(name: str) -> None:
    """Operations within 1 %; bytes between 0.7 of the fused estimate and 1.02 of the unfused bound."""
    found, ours = traced(name), make_workload(name)
    assert found.parameters == ours.parameters
    assert found.batch_size == ours.batch_size
    for part in ("forward", "backward"):
        assert of_pass(found.fused, part, "flops") == pytest.approx(of_pass(ours, part, "flops"), rel=0.01)
        low, high = of_pass(found.fused, part, "dram_bytes"), of_pass(found.unfused, part, "dram_bytes")
        assert low < high
        assert 0.7 * low < of_pass(ours, part, "dram_bytes") < 1.02 * high
    assert found.fused.phases[-1] == ours.phases[-1]
    assert len(found.fused.phases) <= 60


@pytest.mark.parametrize("name", ["resnet50:64", "gpt2:8"])
def test_a_traced_model_runs_on_a_simulated_gpu_in_about_the_time_of_our_own(name: str) -> None:
    model, found = load_model("a100"), traced(name)
    quick_s, ours_s, slow_s = (
        float(tabulate(model, load)[0].iteration_s[-1]) for load in (found.fused, make_workload(name), found.unfused)
    )
    assert quick_s < slow_s
    assert 0.9 * quick_s < ours_s < 1.1 * slow_s


@pytest.mark.parametrize(
    ("name", "make", "inputs"),
    [
        ("vgg16:8", vgg16, torch.empty(8, 3, 224, 224, device="meta")),
        ("lstm:20", RecurrentModel, tokens(20, 35)),
    ],
)
def test_products_agree_where_kernels_do_not(name: str, make: Callable[[], nn.Module], inputs: torch.Tensor) -> None:
    """Operations within 1 %: on the meta device an LSTM falls apart into more kernels than a GPU runs."""
    with torch.device("meta"):
        found = trace(make(), inputs)
    for part in ("forward", "backward"):
        assert of_pass(found.fused, part, "flops") == pytest.approx(
            of_pass(make_workload(name), part, "flops"), rel=0.01
        )
    assert found.parameters == pytest.approx(make_workload(name).parameters, rel=0.001)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.second = nn.Linear(16, 4)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(numbers))


def test_the_modules_add_up_to_the_model() -> None:
    costs = {cost.name: cost for cost in trace(Small(), torch.zeros(32, 8)).modules()}
    assert set(costs) == {"", "first", "first.0", "first.1", "second"}
    assert costs["first.0"].forward_flops == 2 * 32 * 8 * 16
    assert costs["first.0"].backward_flops == pytest.approx(2 * 32 * 8 * 16, rel=0.01)  # its input needs no gradient
    assert costs["second"].backward_flops == pytest.approx(2 * 2 * 32 * 16 * 4, rel=0.01)
    assert costs[""].forward_flops == pytest.approx(
        costs["first"].forward_flops + costs["second"].forward_flops, rel=0.02
    )
    assert {cost.name for cost in trace(Small(), torch.zeros(32, 8)).modules(depth=1)} == {"", "first", "second"}


def test_a_layer_that_is_used_twice_counts_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, numbers: torch.Tensor) -> torch.Tensor:
            return self.layer(self.layer(numbers))

    costs = {cost.name: cost for cost in trace(Twice(), torch.zeros(4, 8)).modules()}
    assert costs["layer"].forward_flops == 2 * 2 * 4 * 8 * 8
    assert costs["layer"].backward_flops >= 3 * 2 * 4 * 8 * 8


def test_recomputed_layers_count_in_the_backward_pass() -> None:
    class Again(Small):
        def forward(self, numbers: torch.Tensor) -> torch.Tensor:
            return self.second(checkpoint(self.first, numbers, use_reentrant=False))

    plain, again = trace(Small(), torch.zeros(32, 8)), trace(Again(), torch.zeros(32, 8))
    assert again.forward_flops == plain.forward_flops
    assert again.backward_flops - plain.backward_flops == pytest.approx(2 * 32 * 8 * 16, rel=0.1)


def test_tracing_leaves_the_model_as_it_was() -> None:
    model = Small().eval()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    trace(model, torch.zeros(2, 8))
    assert not model.training
    assert not model.first.training
    for name, weight in model.named_parameters():
        assert weight.device.type == "cpu"
        assert weight.grad is None
        assert torch.equal(weight, before[name])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_half_precision_halves_the_bytes_and_takes_the_tensor_cores() -> None:
    full, half = (trace(Small(), torch.zeros(32, 8), pipe=pipe) for pipe in (Pipe.TF32, Pipe.FP16))
    assert sum(kernel.unfused_bytes for kernel in half.kernels) == pytest.approx(
        sum(kernel.unfused_bytes for kernel in full.kernels) / 2
    )
    products = [kernel for kernel in half.kernels if "mm" in kernel.name]
    assert products
    assert {kernel.pipe for kernel in products} == {Pipe.FP16}
    halved = trace(Small().to(torch.bfloat16), torch.zeros(32, 8, dtype=torch.bfloat16))
    assert Pipe.FP16 in {kernel.pipe for kernel in halved.kernels}


def attention_of(model: nn.Module, *inputs: torch.Tensor) -> list[float]:
    return [kernel.flops for kernel in trace(model, inputs).kernels if kernel.name == "attention"]


class Mixing(nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.causal = causal

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden * self.scale
        return functional.scaled_dot_product_attention(hidden, hidden, hidden, is_causal=self.causal)


def test_attention_is_fused_and_causal_attention_does_half() -> None:
    hidden = torch.zeros(2, 4, 128, 16)
    forward, backward = attention_of(Mixing(False), hidden)
    assert forward == 4 * 2 * 4 * 128 * 128 * 16
    assert backward == 2.5 * forward
    assert attention_of(Mixing(True), hidden) == [forward / 2, backward / 2]
    (kernel, _) = [kernel for kernel in trace(Mixing(True), hidden).kernels if kernel.name == "attention"]
    assert sum(use.size_bytes for use in (*kernel.reads, *kernel.writes)) == 4 * hidden.numel() * 4
    assert kernel.unfused_extra_bytes == 4 * 2 * 4 * 128 * 128 * 4


def test_attention_inside_of_pytorchs_own_layers_is_found() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    assert len(attention_of(layer, torch.zeros(2, 10, 32))) == 2


def test_functions_of_pytorch_are_given_back() -> None:
    before = (functional.scaled_dot_product_attention, functional.dropout)
    with pytest.raises(InputError):
        trace(Small(), torch.zeros(2, 9))
    assert (functional.scaled_dot_product_attention, functional.dropout) == before


def test_dropout_keeps_a_mask_of_one_byte() -> None:
    kernels = trace(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1)), torch.zeros(4, 8)).kernels
    (dropout,) = [kernel for kernel in kernels if kernel.name == "native_dropout"]
    assert [use.size_bytes for use in dropout.writes] == [4 * 8 * 4, 4 * 8]


def test_convolutions_of_single_channels_are_not_for_tensor_cores() -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3, groups=8))
    pipes = [kernel.pipe for kernel in trace(model, torch.zeros(1, 8, 16, 16)).kernels if "conv" in kernel.name]
    assert pipes == [Pipe.TF32, Pipe.FP32, Pipe.FP32, Pipe.TF32]


def test_recurrent_layers_launch_kernels_at_every_step() -> None:
    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(8, 16)

        def forward(self, steps: torch.Tensor) -> torch.Tensor:
            return self.lstm(steps)[0]

    found = trace(Reading(), torch.zeros(20, 4, 8))
    assert sum(kernel.launches for kernel in found.kernels) > 20 * 4
    products = sum(kernel.flops for kernel in found.kernels if "mm" in kernel.name and not kernel.backward)
    assert products == 20 * 4 * 2 * (8 + 16) * 64


class Looking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.table(rows)


def test_an_embedding_reads_rows_and_its_gradient_is_the_whole_table() -> None:
    found = trace(Looking(), torch.zeros(10, dtype=torch.long))
    by_name = {kernel.name: kernel for kernel in found.kernels}
    assert by_name["embedding"].unfused_bytes == 10 * 8 + 2 * 10 * 4 * 4
    assert by_name["embedding_dense_backward"].writes[0].size_bytes == 1000 * 4 * 4


def test_inputs_may_be_named_and_a_loss_given() -> None:
    found = trace(Small(), {"numbers": torch.zeros(32, 8)}, loss=lambda result: result.pow(2).mean(), name="mine")
    assert (found.name, found.batch_size) == ("mine", 32)
    assert any(kernel.name == "pow" for kernel in found.kernels)


class Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.weight * numbers if numbers.sum().item() > 0 else self.weight


@pytest.mark.parametrize(
    ("model", "inputs", "said"),
    [
        (Small(), torch.zeros(2, 9), "Small cannot be traced"),
        (Deciding(), torch.zeros(4), "Deciding cannot be traced"),
        (nn.Identity(), torch.zeros(4), "nothing that can be trained"),
        ("resnet50", torch.zeros(4), "a str is no torch.nn.Module"),
    ],
)
def test_what_cannot_be_traced_is_said_in_one_line(model: nn.Module, inputs: torch.Tensor, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        trace(model, inputs)
    assert "\n" not in error.value.message
    assert error.value.hint
