"""Hooks in real schedules of PyTorch, in a process group of one."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import groupby

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

from torch import distributed, nn  # noqa: E402
from torch.distributed.pipelining import (  # noqa: E402
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)
from torch.distributed.pipelining.schedules import _Action, _ComputationType  # noqa: E402

from fakes import FakeGpu  # noqa: E402
from pipelines import planned_at  # noqa: E402
from wattune.control.stamps import HostStamp  # noqa: E402
from wattune.core.errors import PlanError, SettingRefused  # noqa: E402
from wattune.core.frontier import Frontier  # noqa: E402
from wattune.core.setting import DRIVER_DEFAULT, Setting  # noqa: E402
from wattune.integrations import pipelining  # noqa: E402
from wattune.integrations.cuda_stamp import CudaStamp  # noqa: E402
from wattune.integrations.pipelining import listened, order_of, played, rank_of, stamps_for, tuned  # noqa: E402
from wattune.levels.pipeline.online import PlanDisabled, PlanProfiling  # noqa: E402
from wattune.levels.pipeline.plan_file import plan_text  # noqa: E402
from wattune.levels.pipeline.planned import Source, choose, plan_profile  # noqa: E402
from wattune.levels.pipeline.player import without_short_switches  # noqa: E402
from wattune.plans.schedules import one_forward_one_backward  # noqa: E402
from wattune.plans.shape import shape_of_order  # noqa: E402
from wattune.plans.stage_profile import parse_stage_profile  # noqa: E402

MICROBATCHES = 4


@pytest.fixture(autouse=True)
def group(tmp_path):
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def stage(index=0, total=1):
    torch.manual_seed(index)
    return PipelineStage(nn.Linear(4, 4), index, total, torch.device("cpu"))


def schedules():
    return {
        "1f1b": Schedule1F1B(stage(), MICROBATCHES, loss_fn=nn.functional.mse_loss),
        "gpipe": ScheduleGPipe(stage(), MICROBATCHES, loss_fn=nn.functional.mse_loss),
        "interleaved": ScheduleInterleaved1F1B(
            [stage(0, 2), stage(1, 2)], MICROBATCHES, loss_fn=nn.functional.mse_loss
        ),
        "zero-bubble": ScheduleInterleavedZeroBubble(
            [stage(0, 2), stage(1, 2)], MICROBATCHES, loss_fn=nn.functional.mse_loss
        ),
    }


NAMES = ["1f1b", "gpipe", "interleaved", "zero-bubble"]


def train(schedule):
    losses = []
    batch = torch.arange(32, dtype=torch.float32).reshape(8, 4) / 32
    schedule.step(batch, target=torch.ones(8, 4), losses=losses)
    return losses


class Heard:
    """Writes down what it hears."""

    def __init__(self):
        self.events = []

    def start(self):
        self.events.append("start")

    def begin(self, piece):
        self.events.append(piece)

    def end(self, piece):
        assert self.events[-1] == piece

    def finish(self):
        self.events.append("finish")

    def fail(self, error):
        raise error


class SettableGpu(FakeGpu):
    """A GPU that writes down the settings it took and that a test can wait for."""

    def __init__(self, refuses=None):
        super().__init__()
        self.refuses = refuses
        self.changed = threading.Condition()
        self.restores = 0

    def apply(self, setting):
        if setting == self.refuses:
            raise SettingRefused("not this clock")
        with self.changed:
            super().apply(setting)
            self.changed.notify_all()

    def restore(self):
        with self.changed:
            self.setting = DRIVER_DEFAULT
            self.restores += 1
            self.changed.notify_all()

    def wait_for(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, 120), self.history


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_a_schedule_is_the_one_that_it_runs(name):
    schedule, heard = schedules()[name], Heard()
    with listened(schedule, heard):
        train(schedule)
        train(schedule)
    (rank,) = order_of(schedule)
    assert heard.events == ["start", *rank, "finish"] * 2


def test_orders_are_those_that_are_planned():
    assert order_of(schedules()["1f1b"]) == one_forward_one_backward(1, MICROBATCHES)
    assert sum(map(len, order_of(schedules()["interleaved"]))) == 4 * MICROBATCHES
    assert rank_of(schedules()["1f1b"]) == 0


def test_an_evaluation_is_not_heard():
    schedule, heard = schedules()["1f1b"], Heard()
    with listened(schedule, heard):
        schedule.eval(torch.zeros(8, 4), target=torch.ones(8, 4), losses=[])
        assert heard.events == []
        train(schedule)
    assert heard.events[0] == "start"


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_as_before_after_the_block(name):
    schedule = schedules()[name]
    stages = [schedule._stage] if hasattr(schedule, "_stage") else schedule._stages
    before = [set(vars(owner)) for owner in (schedule, *stages)]
    with listened(schedule, Heard()):
        assert [set(vars(owner)) for owner in (schedule, *stages)] != before
    assert [set(vars(owner)) for owner in (schedule, *stages)] == before


def test_hooks_may_be_nested():
    schedule, outer, inner = schedules()["1f1b"], Heard(), Heard()
    with listened(schedule, outer):
        with listened(schedule, inner):
            train(schedule)
        train(schedule)
    assert len(outer.events) == 2 * len(inner.events)


def plan_for(schedule, mhz):
    return planned_at(order_of(schedule), mhz).plan.choice


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_sets_the_clocks_and_changes_no_loss(name):
    plain = train(schedules()[name])
    schedule, gpu = schedules()[name], SettableGpu()
    with played(schedule, plan_for(schedule, (900, 900, 1410)), gpu):
        losses = train(schedule)
        gpu.wait_for(lambda: {setting.sm_mhz for setting in gpu.history} == {900, 1410})
    assert [loss.item() for loss in losses] == [loss.item() for loss in plain]
    assert gpu.setting == DRIVER_DEFAULT


PROFILE = """stage,instruction,frequency,time,energy,simulated
0,forward,1410,0.100,30,yes
0,forward,900,0.140,25,yes
0,backward,1410,0.200,62,yes
0,backward,900,0.270,52,yes
"""


def test_a_schedule_is_planned_into_a_file_and_the_file_is_played(tmp_path):
    schedule, gpu = schedules()["gpipe"], SettableGpu()
    profile = parse_stage_profile(PROFILE, file="profile.csv")
    source = Source("profile.csv", "0" * 64, profile.simulated)
    planned = plan_profile(profile, shape_of_order(order_of(schedule)), source=source, blocking_power_w=60.0)
    steady = Frontier.of(
        without_short_switches(planned.graph, trial.choice, profile.options, spec=gpu.spec, blocking_power_w=60.0)
        for trial in planned.frontier
    )
    planned = choose(replace(planned, frontier=steady), deadline_s=1.2 * planned.default.cost.time_s)
    file = tmp_path / "plan.json"
    file.write_text(plan_text(planned))
    with played(schedule, file, gpu) as clocks:
        train(schedule)
        (steps,) = planned.plan.choice.ranks
        changes = [setting for setting, _ in groupby(step.setting for step in steps)]
        gpu.wait_for(lambda: len(gpu.history) + clocks.skipped == len(changes))
    assert gpu.history[-1] == changes[-1]


def test_a_plan_for_another_schedule_is_refused_before_training():
    schedule = schedules()["1f1b"]
    with (
        pytest.raises(PlanError, match="begins where the plan has"),
        played(schedule, plan_for(schedules()["gpipe"], (900,)), SettableGpu()),
    ):
        pass


def test_a_schedule_that_runs_something_else_than_its_plan_ends_the_plan_and_not_the_training(monkeypatch, caplog):
    plain = train(schedules()["1f1b"])
    schedule, gpu = schedules()["1f1b"], SettableGpu()
    plan = plan_for(schedules()["gpipe"], (900,))
    monkeypatch.setattr(pipelining, "order_of", lambda _: ())
    with played(schedule, plan, gpu) as clocks:
        losses = train(schedule)
        train(schedule)
        gpu.wait_for(lambda: gpu.restores > 0)
        assert "begins where the plan has" in clocks.disabled
    assert [loss.item() for loss in losses] == [loss.item() for loss in plain]
    assert len(caplog.records) == 1


def test_a_pipeline_that_is_not_there_is_refused():
    schedule = schedules()["1f1b"]
    with (
        pytest.raises(PlanError, match="no pipeline 2 among 2"),
        tuned(schedule, SettableGpu(), slowdown=0.0, pipeline=2, pipelines=2),
    ):
        pass


def test_a_rank_alone_profiles_at_the_highest_clock_first():
    schedule, gpu = schedules()["1f1b"], SettableGpu()
    with tuned(schedule, gpu, slowdown=0.0, clocks=2) as tuner:
        train(schedule)
        gpu.wait_for(lambda: gpu.history)
        assert isinstance(tuner.progress, PlanProfiling)
    assert gpu.history == [Setting(1410)]


def test_a_refused_clock_ends_the_plan_and_not_the_training(caplog):
    plain_schedule = schedules()["1f1b"]
    plain = [train(plain_schedule) for _ in range(3)]
    schedule, gpu = schedules()["1f1b"], SettableGpu(refuses=Setting(1005))
    with played(schedule, plan_for(schedule, (900, 1005)), gpu) as clocks:
        losses = [train(schedule)]
        gpu.wait_for(lambda: gpu.restores > 0)
        losses += [train(schedule) for _ in range(2)]
        assert clocks.disabled == "not this clock"
        assert gpu.setting == DRIVER_DEFAULT
    assert losses == plain
    assert [record.getMessage() for record in caplog.records] == ["the plan ends, training goes on: not this clock"]


@pytest.mark.parametrize("hook", ["start", "begin", "end", "finish"])
def test_training_sees_no_exception_of_a_hook(hook, caplog):
    plain = train(schedules()["1f1b"])
    schedule, gpu = schedules()["1f1b"], SettableGpu()
    with tuned(schedule, gpu, slowdown=0.0, clocks=2) as tuner:

        def failing(*arguments):
            raise ZeroDivisionError(hook)

        working = getattr(tuner, hook)
        setattr(tuner, hook, failing)
        losses = train(schedule)
        gpu.wait_for(lambda: gpu.restores > 0)
        setattr(tuner, hook, working)
        train(schedule)
        assert tuner.progress == PlanDisabled(f"ZeroDivisionError: {hook}")
    assert losses == plain
    assert len(caplog.records) == 1
    assert gpu.setting == DRIVER_DEFAULT


def test_a_schedule_that_hides_its_order_or_runs_two_instructions_at_once_is_refused():
    class Hiding:
        _n_microbatches = 4

    with pytest.raises(PlanError, match="Hiding does not tell"):
        order_of(Hiding())
    schedule = schedules()["interleaved"]
    both = (_Action(0, _ComputationType.FORWARD, 0), _Action(1, _ComputationType.FULL_BACKWARD, 0))
    schedule.pipeline_order_with_comms = {0: [_Action(-1, _ComputationType.OVERLAP_F_B, None, both)]}
    with pytest.raises(PlanError, match="two instructions at once"):
        order_of(schedule)


class Event:
    """What PyTorch's event of a GPU does."""

    clock_s = 0.0

    def __init__(self, *, enable_timing):
        assert enable_timing

    def record(self, stream):
        Event.clock_s += 0.25
        self.at_s = Event.clock_s

    def query(self):
        return self.at_s < 1.0

    def synchronize(self):
        self.waited = True

    def elapsed_time(self, other):
        return 1000 * (other.at_s - self.at_s)


def test_stamps_of_a_gpu_are_events_of_its_stream(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    first, second = CudaStamp.now("cuda:1"), CudaStamp.now("cuda:1")
    assert first.seconds_to(second) == 0.25
    assert first.passed()
    second.wait()
    with pytest.raises(TypeError):
        first.seconds_to(HostStamp.now())
    with pytest.raises(TypeError):
        HostStamp.now().seconds_to(first)


def test_a_cpu_has_the_clock_of_the_host():
    assert stamps_for(schedules()["1f1b"]) == HostStamp.now
