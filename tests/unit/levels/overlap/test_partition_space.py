"""The settings of partitions: the spaces of Kareus, sequential execution, text, and settings refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattune.core.errors import InputError
from wattune.levels.overlap.layout import ParallelLayout
from wattune.levels.overlap.partitions import PartitionedModel, partition_model
from wattune.levels.overlap.space import PartitionChoice, choices, parse_choice, usual_clocks_mhz
from wattune.physics.catalog import load_model

A100 = load_model("a100")


def model(**layout: int) -> PartitionedModel:
    return partition_model("llama3.2-3b", ParallelLayout(pp=2, **layout), microbatch_size=8)


@pytest.mark.parametrize(("layout", "size"), [({"tp": 8}, 2520), ({"tp": 4, "cp": 2}, 6120)])
def test_the_spaces_are_those_of_kareus_and_sequential_execution(layout: dict[str, int], size: int) -> None:
    found = [choice for part in model(**layout).partitions for choice in choices(part, A100)]
    assert sum(not choice.sequential for choice in found) == size
    assert any(choice.sequential for choice in found)


def test_settings_are_ordered_and_differ() -> None:
    for part in model(tp=4, cp=2).partitions:
        found = choices(part, A100)
        assert list(found) == sorted(set(found))


def test_a_partition_without_a_collective_has_only_clocks() -> None:
    assert {choice.launch for choice in choices(model().partitions[0], A100)} == {"none"}


def test_other_gpus_have_other_clocks() -> None:
    clocks = usual_clocks_mhz(load_model("h100"))
    assert clocks[-1] == load_model("h100").max_mhz
    assert set(clocks) <= set(load_model("h100").clocks[0].sm_mhz)


@given(
    sms=st.integers(1, 107), launch=st.sampled_from(["none", "norm_0", "linear_1", "rope_0", "attn_0", "activation_0"])
)
def test_text_is_read_back(sms: int, launch: str) -> None:
    choice = PartitionChoice(1200, sms, launch)
    assert parse_choice(choice.text, sm_mhz=1200) == choice


def test_text_is_that_of_kareus() -> None:
    assert PartitionChoice(1410, 12, "rope_0").text == "rope_0-none-12-1024"
    assert parse_choice("-1--1-16-1024", sm_mhz=900) == PartitionChoice(900, 16, "none")


@pytest.mark.parametrize("text", ["", "norm_0", "norm_0-attn_0-3-1024", "norm_0-none-x-1024", "norm_0-none-3-512"])
def test_text_that_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_choice(text, sm_mhz=900)


def test_settings_out_of_range_are_refused() -> None:
    part = model(tp=8).partitions[0]
    with pytest.raises(InputError, match="108 of the 108 SMs"):
        choices(part, A100, comm_sms=(3, 108))
    with pytest.raises(InputError, match="0 of the 108 SMs"):
        choices(part, A100, comm_sms=(0,))
    with pytest.raises(InputError, match="no core clock of 901 MHz"):
        choices(part, A100, clocks_mhz=(900, 901))
    with pytest.raises(InputError, match="no number of SMs"):
        choices(part, A100, comm_sms=())
