"""CUDA_VISIBLE_DEVICES as CUDA reads it."""

import pytest

from wattune.devices.nvml.open import visible_indices

UUIDS = ("GPU-aaaa-1", "GPU-aabb-2", "GPU-cccc-3")


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, (0, 1, 2)),
        ("", ()),
        ("-1", ()),
        ("0", (0,)),
        ("2,0", (2, 0)),
        (" 1 , 2 ", (1, 2)),
        ("0,-1,2", (0,)),
        ("0,7,2", (0,)),
        ("0,0", (0,)),
        ("GPU-cccc", (2,)),
        ("gpu-cccc", ()),
        ("GPU-aa", ()),
        ("GPU-aabb-2,0", (1, 0)),
        ("MIG-GPU-cccc-3/1/0", (2,)),
        ("MIG-1234", ()),
        ("NoDevFiles", ()),
    ],
)
def test_visible_indices(variable, expected):
    assert visible_indices(variable, UUIDS) == expected
