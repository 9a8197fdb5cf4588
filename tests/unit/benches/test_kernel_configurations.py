"""The ten configurations of Kareus on simulated GPUs against what was published."""

from __future__ import annotations

import pytest

from wattune.physics.catalog import load_model
from wattune_bench.kernels.configurations import (
    CONFIGURATIONS,
    GPU,
    KAREUS,
    NANOBATCHING,
    PERSEUS,
    configuration_rows,
    truth_goals,
)


@pytest.fixture(scope="module")
def rows():
    return configuration_rows(load_model(GPU))


def test_there_are_ten_with_their_figures() -> None:
    assert len({configuration.name for configuration in CONFIGURATIONS}) == 10
    for configuration in CONFIGURATIONS:
        assert set(configuration.published) == {PERSEUS, NANOBATCHING, KAREUS}
        assert configuration.layout.devices == 16
        assert len(configuration.partitioned().partitions) == (4 if configuration.cp == 1 else 12)


def test_megatron_with_perseus_takes_and_spends_what_was_published(rows) -> None:
    for row in rows:
        if row["system"] == PERSEUS:
            assert abs(row["time_off_percent"]) <= 15, row["config"]
            assert abs(row["energy_off_percent"]) <= 15, row["config"]


def test_nanobatching_helps_and_hurts_where_it_did(rows) -> None:
    for row in rows:
        if row["system"] == NANOBATCHING:
            assert row["time_reduction_percent"] * row["published_time_reduction_percent"] > 0, row["config"]


def test_goals_are_stated(rows) -> None:
    assert all(goal.met for goal in truth_goals(rows))
    assert all(row["simulated"] for row in rows)
