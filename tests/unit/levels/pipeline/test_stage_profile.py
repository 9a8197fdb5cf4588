from __future__ import annotations

import pytest

from pipelines import CLOCKS, HEADER, profile_csv, profile_rows, small_profile
from wattune.core.errors import InputError, PlanError
from wattune.core.setting import Setting
from wattune.plans.plan import StageChoice
from wattune.plans.schedules import SCHEDULES
from wattune.plans.shape import SCHEDULE_NAMES, PipelineShape, shape_of
from wattune.plans.stage_profile import parse_stage_profile


def parsed(*rows: str, header: str = HEADER):
    return parse_stage_profile("\n".join((header, *rows)), file="p.csv")


def test_every_row_is_an_option_of_its_kind():
    profile = small_profile(stages=2)
    assert set(profile.options) == {"0.forward", "0.backward", "1.forward", "1.backward"}
    assert [trial.choice.setting.sm_mhz for trial in profile.options["1.backward"]] == list(CLOCKS)
    assert (profile.stages, profile.simulated) == (2, False)


def test_the_default_is_the_highest_setting():
    profile = parsed("0,forward,900,2,200", "0,forward,1400,1,300", "0,forward,1200,1.5,250")
    assert profile.default["0.forward"].choice.setting == Setting(1400)


def test_an_empty_clock_is_the_drivers_and_the_highest_setting():
    profile = parsed("0,forward,,1,300", "0,forward,1400,1.1,250")
    assert profile.default["0.forward"].choice.setting == Setting()


def test_further_columns_are_settings_and_knobs():
    header = f"{HEADER},mem_mhz,power_limit_w,attention,simulated"
    profile = parsed("0,Forward,1400,1,300,1215,250.5,norm_0-none-12-1024,yes", header=header)
    (trial,) = profile.options["0.forward"]
    assert trial.choice == StageChoice(Setting(1400, 1215, 250.5), (("attention", "norm_0-none-12-1024"),))
    assert profile.simulated
    assert str(trial.choice) == "1400 MHz, memory 1215 MHz, limit 250.5 W, attention norm_0-none-12-1024"


def test_knobs_make_rows_at_one_clock_different():
    profile = parsed("0,forward,1400,1,300,a", "0,forward,1400,2,200,b", header=f"{HEADER},attention")
    assert len(profile.options["0.forward"]) == 2


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["0,forward,1400,1,300", "0,forward,1400,2,200"], ["line 3, column frequency", "on line 2 too"]),
        (["0,forward,1400,0,300"], ["line 2, column time", "above 0"]),
        (["0,forward,1400,-1,300"], ["line 2, column time", "above 0"]),
        (["0,forward,1400,nan,300"], ["line 2, column time"]),
        (["0,forward,1400,1,0"], ["line 2, column energy"]),
        (["0,forward,1400.5,1,2"], ["line 2, column frequency", "whole number"]),
        (["0,forward,fast,1,2"], ["line 2, column frequency", "'fast'"]),
        (["zero,forward,1400,1,2"], ["line 2, column stage", "'zero'"]),
        (["-1,forward,1400,1,2"], ["line 2, column stage"]),
        (["²,forward,1400,1,2"], ["line 2, column stage"]),
        (["0,,1400,1,2"], ["line 2, column instruction", "empty"]),
        (["0,forward,1400,1"], ["line 2", "4 cells for 5 columns"]),
        (["0,forward,1400,1,2", "2,forward,1400,1,2"], ["stage 2", "none for stage 1"]),
        ([], ["no rows"]),
    ],
)
def test_an_error_names_the_row(rows, words):
    with pytest.raises(InputError) as failure:
        parsed(*rows)
    for word in ("p.csv", *words):
        assert word in failure.value.message
    assert failure.value.hint


def test_a_missing_column_is_named():
    with pytest.raises(InputError, match="no column energy"):
        parse_stage_profile("stage,instruction,frequency,time\n0,forward,1,1\n", file="p.csv")


def test_a_missing_instruction_of_the_schedule_is_named():
    rows = [row for row in profile_rows(3) if not row.startswith("1,backward")]
    with pytest.raises(InputError, match="stage 1 has no row for 'backward'"):
        parsed(*rows).shape("1f1b", 4)
    with pytest.raises(InputError, match="stage 0 has no row for 'recompute'"):
        small_profile().shape("early-recomputation", 4)
    with pytest.raises(InputError, match="stage 0 has no row for 'weight'"):
        small_profile().shape("zero-bubble", 4)


def test_energy_below_blocking_power_names_the_row():
    profile = parsed("0,forward,1400,1,300", "0,forward,900,2,100")
    profile.check_blocking_power(50.0)
    with pytest.raises(InputError, match=r"line 3, column energy: 100 J in 2 s is 50.0 W, less than .* 50.1 W"):
        profile.check_blocking_power(50.1)


@pytest.mark.parametrize("schedule", SCHEDULE_NAMES)
def test_every_schedule_has_a_shape_and_a_graph(schedule):
    instructions = ("forward", "backward", "recompute", "weight")
    profile = parse_stage_profile(profile_csv(4, instructions=instructions), file="p.csv")
    chunks = 2 if schedule == "interleaved" else 1
    shape = profile.shape(schedule, 4, chunks=chunks)
    assert shape.ranks == 4 // chunks
    assert len({operation.rank for operation in shape.graph.operations}) == shape.ranks
    assert f"{shape.ranks} ranks" in str(shape)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("2f2b", 4, 4), "no schedule '2f2b'"),
        (("1f1b", 4, 0), "at least one"),
        (("1f1b", 4, 4, 2), "one chunk per rank"),
        (("interleaved", 5, 4, 2), "5 stages"),
    ],
)
def test_impossible_shapes_are_refused(arguments, words):
    with pytest.raises(PlanError, match=words):
        PipelineShape(*arguments)


def test_interleaving_needs_microbatches_that_fit():
    with pytest.raises(PlanError, match="multiple of 2 microbatches, not 5"):
        _ = PipelineShape("interleaved", 4, 5, 2).graph


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_shape_is_recognised_by_its_instructions(schedule):
    shape = PipelineShape(schedule, 3, 5)
    names = [[piece.instruction for piece in rank] for rank in shape.order]
    assert shape_of(names) == shape


@pytest.mark.parametrize("names", [[], [[]], [["backward"]], [["forward", "backward"], ["backward", "forward"]]])
def test_instructions_that_follow_no_schedule_are_refused(names):
    with pytest.raises(PlanError):
        shape_of(names)
