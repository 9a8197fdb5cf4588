"""CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER as CUDA reads them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.core.errors import NotSupported
from wattune.devices.nvml.visible import Present, visible_gpus, visible_places

UUIDS = ("GPU-aaaa-1", "GPU-aabb-2", "GPU-cccc-3")
MIXED = (Present(0, "GPU-a", "small", 1.0), Present(1, "GPU-b", "large", 3.0), Present(2, "GPU-c", "middle", 2.0))


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, (0, 1, 2)),
        ("", ()),
        ("-1", ()),
        ("0", (0,)),
        ("2,0", (2, 0)),
        (" 1 , 2 ", (1, 2)),
        ("1gpu,+2", (1, 2)),
        ("0,-1,2", (0,)),
        ("0,7,2", (0,)),
        ("0," + "9" * 400, (0,)),
        ("0,0", ()),
        ("GPU-cccc", (2,)),
        ("gpu-cccc", ()),
        ("GPU-aa", ()),
        ("GPU-aabb-2,0", (1,)),
        ("GPU-cccc,GPU-cccc-3", ()),
        ("NoDevFiles", ()),
    ],
)
def test_visible_places(variable, expected):
    assert visible_places(variable, UUIDS) == expected


ENTRIES = st.sampled_from(["0", "1", "2", "3", " 1", "2x", "-1", "", "x", *UUIDS, "GPU-cc", "GPU-aa", "GPU-", "GPU-q"])


@settings(deadline=None)
@given(st.lists(ENTRIES, min_size=1, max_size=5))
def test_places_are_those_of_pytorch(entries):
    """PyTorch counts GPUs without CUDA by the same rules."""
    cuda = pytest.importorskip("torch.cuda")
    variable = ",".join(entries)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CUDA_VISIBLE_DEVICES", variable)
        listed = cuda._parse_visible_devices()
    if listed and isinstance(listed[0], str):
        listed = cuda._transform_uuid_to_ordinals(listed, list(UUIDS))
    first_bad = next((place for place, index in enumerate(listed) if index >= len(UUIDS)), len(listed))
    assert visible_places(variable, UUIDS) == tuple(listed[:first_bad])


@pytest.mark.parametrize("variable", ["MIG-GPU-cccc-3/1/0", "MIG-1234", "MIG-1234,0"])
def test_a_slice_is_an_error_that_names_it(variable):
    with pytest.raises(NotSupported, match=variable.split(",")[0]) as caught:
        visible_places(variable, UUIDS)
    assert "nvml:GPU-" in caught.value.hint


def places(gpus, order, answer):
    found = visible_gpus(None, order, gpus, ask_cuda=lambda: answer)
    return tuple(gpu.index for gpu in found.gpus), found.origin


def test_gpus_of_one_kind_are_in_bus_order():
    same = tuple(Present(index, f"GPU-{index}", "one", 0.0) for index in range(3))
    assert places(same, None, pytest.fail) == ((0, 1, 2), "bus")


def test_bus_order_where_it_is_asked_for():
    assert places(MIXED, "PCI_BUS_ID", pytest.fail) == ((0, 1, 2), "bus")


@pytest.mark.parametrize("order", [None, "FASTEST_FIRST", "nonsense"])
def test_otherwise_cuda_knows_best(order):
    assert places(MIXED, order, ("GPU-c", "GPU-a", "GPU-b")) == ((2, 0, 1), "cuda")
    assert places(MIXED, order, ("GPU-c",)) == ((2, 0, 1), "cuda")


@pytest.mark.parametrize("answer", [None, ("GPU-elsewhere",)])
def test_without_cuda_the_order_is_estimated(answer):
    assert places(MIXED, None, answer) == ((1, 2, 0), "estimate")


def test_numbers_count_in_the_order_of_cuda():
    found = visible_gpus("2,1", None, MIXED, ask_cuda=lambda: None)
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-a", "GPU-c"]
