from __future__ import annotations

import re
import sys
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import BLOCKING_W, planned_pipeline, profile_csv, small_profile
from wattune.core.errors import InputError, PlanError
from wattune.core.frontier import Frontier
from wattune.levels.pipeline.planned import Source
from wattune.levels.pipeline.schedule_exchange import export_files, import_files
from wattune.levels.pipeline.schedule_files import (
    Instruction,
    check_config,
    freqs_text,
    join,
    parse_freqs,
    parse_scheds,
    scheds_text,
)
from wattune.plans.stage_profile import parse_stage_profile

SOURCE = Source("p.csv", "0" * 64, False)

PERSEUS = """[
[('forward', 1400), ('forward', 800), ('backward', 1000), ('backward', 0)],
[('forward', 1400), ('backward', 1200), ('forward', 1200), ('backward', 1400)],
]
# Iteration 7 cost change: 1.5
# Iteration 7 total cost: 100.0
# Iteration 7 total cost with P2P: 340.0
"""
SOSP = """[
[1400, 800, 1000, 1400],
[1400, 1200, 1200, 1400],
]
# Iteration 7: refined cost 340.5
"""
SCHEDS = """[
[('forward', 'norm_0-none-12-1024', 'rope_0-none-3-1024'), ('forward', '-1--1-16-1024'), ('backward', 'a-none-1-1'),
 ('backward', 'b-none-1-1')],
[('forward', '0-8-16-1024'), ('backward', 'c-none-1-1'), ('forward', 'd-none-1-1'), ('backward', 'e-none-1-1')],
]
"""
PAIRS = """[
[(('forward', 'f-none-0-1'), ('backward', 'b-none-0-1')), (('forward', 'f-none-1-1'), ('backward', 'b-none-1-1'))],
[(('forward', 'f-none-2-1'), ('backward', 'b-none-2-1')), (('forward', 'f-none-3-1'), ('backward', 'b-none-3-1'))],
]
"""


def imported(texts, profile=None, *, schedule="1f1b"):
    profile = profile or small_profile(stages=2)
    return import_files(texts, profile, source=SOURCE, blocking_power_w=BLOCKING_W, schedule=schedule)


def test_clocks_and_names_are_read():
    assert parse_freqs(PERSEUS, file="f.py")[0] == (
        Instruction("forward", 1400),
        Instruction("forward", 800),
        Instruction("backward", 1000),
        Instruction("backward", None),
    )


def test_bare_clocks_of_the_artifact_are_read():
    assert parse_freqs(SOSP, file="f.py")[1] == tuple(Instruction(None, mhz) for mhz in (1400, 1200, 1200, 1400))


def test_configurations_join_the_clocks():
    joined = join(parse_freqs(PERSEUS, file="f.py"), parse_scheds(SCHEDS, file="s.py"), file="s.py")
    assert joined[0][0] == Instruction("forward", 1400, ("norm_0-none-12-1024", "rope_0-none-3-1024"))
    assert joined[1][3] == Instruction("backward", 1400, ("e-none-1-1",))


def test_pairs_without_recomputation_join_by_microbatch():
    joined = join(parse_freqs(PERSEUS, file="f.py"), parse_scheds(PAIRS, file="s.py"), file="s.py")
    assert [entry.configs[0] for entry in joined[0]] == ["f-none-0-1", "f-none-1-1", "b-none-0-1", "b-none-1-1"]
    assert [entry.configs[0] for entry in joined[1]] == ["f-none-2-1", "b-none-2-1", "f-none-3-1", "b-none-3-1"]


def test_halves_of_different_pipelines_do_not_join():
    with pytest.raises(PlanError, match="another pipeline"):
        join(parse_freqs(PERSEUS, file="f.py"), parse_scheds("[[('forward', 'a-b-1-1')]]", file="s.py"), file="s.py")
    wrong = SCHEDS.replace("('backward', 'c-none-1-1')", "('forward', 'c-none-1-1')")
    with pytest.raises(PlanError, match="stage 1, entry 3: there is no configuration left for 'backward'"):
        join(parse_freqs(PERSEUS, file="f.py"), parse_scheds(wrong, file="s.py"), file="s.py")


@pytest.mark.parametrize("text", ["rope_0-none-12-1024", "0-8-16-1024", "-1--1-16-1024"])
def test_a_configuration_has_four_parts(text):
    check_config(text, where="here")


@pytest.mark.parametrize(
    "text", ["", "norm_0", "norm_0-none-12", "a-b-c-d", "norm_0-none--1-1024", "a-b-1-1; rm", "-1-a-1-1"]
)
def test_other_texts_are_no_configuration(text):
    with pytest.raises(PlanError, match=r"here: .* is not a configuration"):
        check_config(text, where="here")


HOSTILE = [
    "",
    "[]",
    "[[]]",
    "{}",
    "[1]",
    "1410",
    "'text'",
    "None",
    "[['forward']]",
    "[[('forward', '1410')]]",
    "[[('forward', True)]]",
    "[[('forward', 1410.5)]]",
    "[[('forward', -1)]]",
    "[[('forward', 999999999)]]",
    "[[('forward', 99999999999999999999)]]",
    "[[(1, 2)]]",
    "[[('forward', 1410, 3)]]",
    "[[b'1']]",
    "[[1410]",
    "[[1410]]]",
    "[[1410 1410]]",
    "[[1410]](1)",
    "__import__('os').system('false')",
    "[[__import__('os').system('false')]]",
    "[[(lambda: 1)()]]",
    "[[1410 for _ in range(10)]]",
    "[[10**10**10]]",
    "[[1410]] * 10**9",
    "[" * 100_000,
    "[" * 100_000 + "]" * 100_000,
    "(" * 300 + "1" + ")" * 300,
    "-" * 1_000_000 + "1",
    "1+" * 100_000 + "1",
    "not " * 100_000 + "1",
    "'" * 100_001,
    "[['\\N{BULLET}', 1]]",
    "[[f'{1}', 1]]",
    "\x00",
    "[[0x10]]",
    "[[1_000]]",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("parse", [parse_freqs, parse_scheds])
def test_hostile_files_are_refused_in_one_line(parse, text):
    with pytest.raises(PlanError) as failure:
        parse(text, file="f.py")
    assert "f.py" in failure.value.message
    assert "\n" not in failure.value.message
    assert len(failure.value.message) < 200
    assert failure.value.hint


def test_a_huge_file_is_refused_before_it_is_parsed(monkeypatch):
    monkeypatch.setattr("wattune.levels.pipeline.schedule_files.MOST_CHARACTERS", 10)
    with pytest.raises(PlanError, match="longer than 10"):
        parse_freqs(PERSEUS, file="f.py")


@given(st.text(max_size=60))
def test_any_text_is_a_schedule_or_a_plan_error(text):
    for parse in (parse_freqs, parse_scheds):
        with suppress(PlanError):
            assert parse(text, file="f.py")


NAMES = st.sampled_from(["forward", "backward", "recompute"])
STAGES = st.lists(
    st.lists(st.builds(Instruction, NAMES, st.one_of(st.none(), st.integers(1, 3000)), st.just(())), min_size=1),
    min_size=1,
)


@given(STAGES)
def test_written_files_round_trip(stages):
    written = freqs_text(stages, ["Iteration 3 total cost: 1.5"])
    assert parse_freqs(written, file="f.py") == tuple(map(tuple, stages))
    bare = parse_freqs(freqs_text(stages, [], names=False), file="f.py")
    assert [[i.sm_mhz for i in stage] for stage in bare] == [[i.sm_mhz for i in stage] for stage in stages]


def test_configurations_round_trip():
    stages = [[Instruction("forward", 1400, ("norm_0-none-12-1024",)), Instruction("backward", 1, ("0-8-16-1024",))]]
    assert parse_scheds(scheds_text(stages, ["a remark"]), file="s.py") == (
        (("forward", ("norm_0-none-12-1024",)), ("backward", ("0-8-16-1024",))),
    )


@pytest.mark.parametrize("form", ["perseus", "perseus-sosp24"])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_a_frontier_survives_export_and_import(form, schedule):
    profile = small_profile(stages=3)
    planned = planned_pipeline(profile, schedule=schedule)
    again = imported(export_files(planned, form), profile, schedule=schedule)
    assert again.shape == planned.shape
    assert [trial.choice.choices for trial in again.frontier] == [t.choice.choices for t in planned.frontier]
    for before, after in zip(planned.frontier, again.frontier, strict=True):
        assert after.cost.energy_j == pytest.approx(before.cost.energy_j)
        assert after.choice.bound_j <= after.cost.energy_j * (1 + 1e-9)
        assert after.choice.bound_j >= before.choice.bound_j * (1 - 1e-6)


def test_the_fastest_plan_has_the_largest_number_and_its_cost_in_a_comment():
    planned = planned_pipeline()
    files = export_files(planned, "perseus")
    assert list(files) == [f"freqs_pipeline_{number:05d}.py" for number in range(len(planned.frontier))]
    cost = planned.frontier.fastest.cost
    figures = dict(re.findall(r"# Iteration \d+ ([\w ]+): (\S+)", list(files.values())[-1]))
    assert float(figures["total cost with P2P"]) == pytest.approx(cost.energy_j)
    waiting_j = float(figures["total cost with P2P"]) - float(figures["total cost"])
    assert waiting_j == pytest.approx(cost.time_s * 3 * BLOCKING_W)


def kareus_profile():
    header, *rows = profile_csv(2).splitlines()
    rows = [f"{row},{slot}-none-{sms}-1024" for row in rows for slot, sms in (("norm_0", 12), ("rope_0", 6))]
    rows = [_costlier(row) if "rope" in row else row for row in rows]
    return parse_stage_profile("\n".join((f"{header},attention", *rows)), file="p.csv")


def _costlier(row):
    stage, instruction, clock, time_s, energy_j, config = row.split(",")
    return ",".join((stage, instruction, clock, repr(1.05 * float(time_s)), repr(0.9 * float(energy_j)), config))


def test_a_kareus_frontier_survives_with_its_configurations():
    profile = kareus_profile()
    planned = planned_pipeline(profile)
    files = export_files(planned, "kareus")
    assert len(files) == 2 * len(planned.frontier)
    again = imported(files, profile)
    assert [trial.choice.choices for trial in again.frontier] == [t.choice.choices for t in planned.frontier]


TP = {"forward": ("fwd_attn", "fwd_mlp"), "backward": ("fwd_attn", "fwd_mlp", "bwd_attn", "bwd_mlp")}
CP = {
    "forward": ("fwd_qkv_ar", "fwd_qkv_ag", "fwd_ao_ag", "fwd_ao_ar", "fwd_mlp"),
    "backward": ("bwd_qkv_ar", "bwd_qkv_rs", "bwd_a_rs", "bwd_a_ag", "bwd_o_ag", "bwd_o_ar", "bwd_mlp"),
}


@pytest.mark.parametrize("names", [TP, TP | {"backward": ("bwd_attn", "bwd_mlp")}, CP])
def test_schedules_of_kareus_keep_their_configurations_beside_a_profile_of_clocks(names):
    planned = planned_pipeline(points=3)
    entries = {kind: tuple((name, f"norm_0-none-{n + 3}-1024") for n, name in enumerate(names[kind])) for kind in names}
    trials = [
        replace(
            trial,
            choice=replace(
                trial.choice,
                choices=tuple(
                    replace(choice, knobs=entries[operation.name.partition(" ")[0]])
                    for operation, choice in zip(trial.choice.graph.operations, trial.choice.choices, strict=True)
                ),
            ),
        )
        for trial in planned.frontier
    ]
    files = export_files(replace(planned, frontier=Frontier.of(trials)), "kareus")
    again = imported(files, parse_stage_profile(profile_csv(3), file="p.csv"))
    assert [trial.choice.choices for trial in again.frontier] == [trial.choice.choices for trial in trials]
    one = {name: text.replace(", 'norm_0-none-4-1024'", "") for name, text in files.items()}
    with pytest.raises(PlanError, match="configurations are of no"):
        imported(one, parse_stage_profile(profile_csv(3), file="p.csv"))


def test_a_kareus_file_without_configurations_is_refused():
    with pytest.raises(PlanError, match="has no configurations"):
        export_files(planned_pipeline(), "kareus")


def test_configurations_are_not_lost_silently():
    planned = planned_pipeline(kareus_profile(), points=3)
    with pytest.raises(PlanError, match="hold clocks alone"):
        export_files(planned, "perseus")


def test_a_knob_that_is_no_configuration_cannot_be_a_kareus_file():
    header, *rows = profile_csv(2).splitlines()
    profile = parse_stage_profile("\n".join((f"{header},colour", *(f"{row},red" for row in rows))), file="p.csv")
    with pytest.raises(PlanError, match="'red' is not a configuration"):
        export_files(planned_pipeline(profile, points=3), "kareus")


def test_settings_that_the_files_cannot_hold_are_refused():
    header, *rows = profile_csv(2).splitlines()
    profile = parse_stage_profile("\n".join((f"{header},power_limit_w", *(f"{row},250" for row in rows))), file="p.csv")
    with pytest.raises(PlanError, match="core clocks alone"):
        export_files(planned_pipeline(profile, points=3), "perseus")


def test_zero_leaves_the_clock_at_its_default():
    planned = imported({"freqs_pipeline_00007.py": PERSEUS})
    rank = [place for place, operation in enumerate(planned.graph.operations) if operation.rank == 0]
    assert planned.plan.choice.choices[rank[-1]].setting.sm_mhz == 1400


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({}, "no freqs_pipeline"),
        ({"plan.py": PERSEUS}, "no freqs_pipeline"),
        ({"freqs_pipeline_1.py": "[[('forward', 1400), ('backward', 1400)]]"}, "for 1 stages and p.csv has 2"),
        ({"freqs_pipeline_1.py": PERSEUS.replace("800", "850")}, "stage 0, forward has no row at 850 MHz"),
        ({"freqs_pipeline_1.py": PERSEUS.replace("backward", "sideways")}, "follow no known schedule"),
        ({"freqs_pipeline_1.py": SOSP.replace("[1400, 1200, 1200, 1400]", "[1400]")}, "another pipeline"),
        (
            {"freqs_pipeline_1.py": PERSEUS, "freqs_pipeline_2.py": "[[('forward', 1400), ('backward', 1400)]] * 2"},
            "no part of a list literal",
        ),
        (
            {
                "freqs_pipeline_1.py": PERSEUS,
                "freqs_pipeline_2.py": "[[('forward', 1400), ('backward', 1400)]," * 2 + "]",
            },
            "list literal",
        ),
        (
            {"freqs_pipeline_1.py": PERSEUS, "freqs_pipeline_2.py": PERSEUS.replace("'forward', 8", "'backward', 8")},
            "freqs_pipeline_2.py, stage 0, entry 1: 'backward' where the schedule runs 'forward'",
        ),
        ({"freqs_pipeline_1.py": PERSEUS, "scheds_pipeline_1.py": SCHEDS.replace("'c-none-1-1'", "3")}, "stage 1"),
    ],
)
def test_import_errors_name_the_problem(texts, words):
    with pytest.raises((PlanError, InputError)) as failure:
        imported(texts)
    assert words in failure.value.message
    assert failure.value.hint


def test_parsing_leaves_the_recursion_limit_alone():
    before = sys.getrecursionlimit()
    with pytest.raises(PlanError):
        parse_freqs("[" * 50_000, file="f.py")
    assert sys.getrecursionlimit() == before
