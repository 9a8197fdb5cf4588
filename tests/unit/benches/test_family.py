"""The 71 training jobs that stand in for GPOEO's suites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from wattune.core.errors import InputError
from wattune.core.workload import Workload
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.physics.timing import bandwidth_bytes_per_s
from wattune.workloads.training_run import phase_counts
from wattune_bench.family import SIZE, FamilyMember, family, members_named

MODEL = load_model("3080ti")
FAMILY = family(seed=0)


@dataclass(frozen=True)
class Shares:
    """Of the time of a step at the highest clocks, by what it waits for."""

    compute: float
    memory: float
    launch: float
    host: float
    step_s: float


def shares(workload: Workload) -> Shares:
    top = np.array([float(MODEL.max_mhz)])
    bandwidth = float(bandwidth_bytes_per_s(MODEL, top, MODEL.default_mem_mhz)[0])
    spent = {"compute": 0.0, "memory": 0.0, "launch": 0.0, "host": 0.0}
    for phase in workload.phases:
        compute_s = phase.flops / float(MODEL.unit(phase.pipe).flops(top)[0])
        memory_s = phase.dram_bytes / bandwidth
        spent["compute" if compute_s > memory_s else "memory"] += max(compute_s, memory_s)
        spent["launch"] += phase.launches * MODEL.launch_s
        spent["host"] += phase.host_stall_s
    step_s = sum(spent.values())
    return Shares(**{name: seconds / step_s for name, seconds in spent.items()}, step_s=step_s)


def test_there_are_seventy_one_with_fixed_names() -> None:
    names = [member.name for member in FAMILY]
    assert len(set(names)) == len(names) == SIZE == 71
    assert sum(member.name.startswith("aibench/") for member in FAMILY) == 17
    assert names == [member.name for member in family(seed=1)]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("resnet",), ("aibench/image-classification", "aibench/3d-face-recognition", "aibench/object-detection")),
        (("ResNet101",), ("aibench/object-detection",)),
        (("search", "ncf"), ("aibench/recommendation", "aibench/architecture-search")),
    ],
)
def test_jobs_are_found_by_parts_of_their_name_or_network(words: tuple[str, ...], names: tuple[str, ...]) -> None:
    assert members_named(words) == names
    assert members_named(()) == tuple(member.name for member in FAMILY)


@pytest.mark.parametrize(
    ("word", "near"), [("image-clasification", "aibench/image-classification"), ("renset50", "resnet50")]
)
def test_a_word_that_finds_none_is_answered_with_close_names(word: str, near: str) -> None:
    with pytest.raises(InputError, match="no job of the family") as caught:
        members_named(("resnet", word))
    assert near in (caught.value.hint or "")


def test_the_same_seed_makes_the_same_family() -> None:
    assert family(seed=0) == FAMILY
    different = [one.loop != other.loop for one, other in zip(FAMILY, family(seed=1), strict=True)]
    assert sum(different) > 60


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_steps_of_the_family_differ_in_their_bottleneck(seed: int) -> None:
    """Run with -s to see the table."""
    found = {member.name: shares(member.step) for member in family(seed=seed)}
    for name, share in found.items():
        print(
            f"simulated RTX 3080 Ti  {name:34s} {1e3 * share.step_s:8.2f} ms  compute {share.compute:4.0%}"
            f"  memory {share.memory:4.0%}  launch {share.launch:4.0%}  host {share.host:4.0%}"
        )
    for field, high in (("compute", 0.8), ("memory", 0.8), ("launch", 0.2), ("host", 0.8)):
        values = sorted(getattr(share, field) for share in found.values())
        assert values[0] < 0.02
        assert values[-1] > high
        # No heap: the middle half of the jobs covers some range, but launches are rarely most of the time.
        assert values[53] - values[17] > (0.02 if field in ("launch", "compute") else 0.2)
    mainly = [
        max(("compute", "memory", "launch", "host"), key=lambda field: getattr(share, field))
        for share in found.values()
    ]
    assert mainly.count("compute") >= 4
    assert mainly.count("memory") >= 15
    assert mainly.count("host") >= 15
    steps_s = [share.step_s for share in found.values()]
    assert max(steps_s) / min(steps_s) > 100
    assert max(steps_s) < 2.0


@pytest.mark.parametrize("member", FAMILY[::7], ids=lambda member: member.name)
def test_a_run_is_its_unrolled_loop(member: FamilyMember) -> None:
    assert len(member.run.phases) == sum(phase_counts(member.loop).values())
    assert len(member.run.phases) < 6000
    assert member.run == member.run


def test_some_accumulate_evaluate_and_save() -> None:
    names = {phase.name.partition("/")[0] for member in FAMILY for phase in phase_counts(member.loop)}
    assert {"forward", "backward", "optimizer", "loading", "checkpoint"} <= names
    assert any("micro-step" in str(member.loop) and "times=4" in str(member.loop) for member in FAMILY)


def test_lower_clocks_are_free_for_some_and_costly_for_others() -> None:
    """At two thirds of the highest clock the slowdown ranges from nothing to that of pure arithmetic."""
    slowdowns = []
    for member in FAMILY:
        table = tabulate(MODEL, member.step)[0]
        column = int(np.searchsorted(table.sm_mhz, 2 / 3 * MODEL.max_mhz))
        slowdowns.append(float(table.iteration_s[column] / table.iteration_s[-1]))
    assert min(slowdowns) < 1.02
    assert max(slowdowns) > 1.4
