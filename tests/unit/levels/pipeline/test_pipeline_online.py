"""Planning while training, in simulated time: profile, plan, hold, and a straggler that comes and goes."""

from dataclasses import dataclass, field
from random import Random

import pytest

from wattune.core.errors import InputError, PlanError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.pipeline import straggler
from wattune.levels.pipeline.online import OnlinePlanning, PlanHeld, PlanProfiling, RankReading, profiling_settings
from wattune.levels.pipeline.planner import plan_pipeline
from wattune.levels.pipeline.profiling import Curve
from wattune.physics.catalog import load_model
from wattune.plans.plan import StageChoice
from wattune.plans.shape import PipelineShape

SPEC = load_model("a100").spec()
GRAPH = PipelineShape("1f1b", 4, 8).graph
WAITING_W = 85.0
WORK_S = (0.030, 0.040, 0.036, 0.044)
"""Of a forward of each stage at the highest clock; a backward takes twice as long."""


def truth(kind):
    stage, _, instruction = kind.partition(".")
    work_s = WORK_S[int(stage)] * (2.0 if instruction == "backward" else 1.0)
    return Curve(1410, 0.1 * work_s, 0.9 * work_s, 0.3, 95.0, 240.0, 0.6, 0.3)


@dataclass
class Pipeline:
    """A pipeline that takes as long as its clocks and stragglers say, but for some noise."""

    policy: OnlinePlanning
    number: int = 0
    noise: float = 0.003
    straggler: dict[int, float] = field(default_factory=dict)
    patience: int = 2
    """Iterations at a clock until the counter has shown enough."""

    def __post_init__(self):
        self.random = Random(f"pipeline {self.number}")
        self.seen = 0

    def run(self, progress):
        """What its ranks read, how long the iteration took and what it spent."""
        settings = {
            step.span: step.setting
            for rank, _ in enumerate(self.policy.graph.by_rank)
            for step in self.policy.steps(progress, pipeline=self.number, rank=rank)
        }
        costs = [self.cost(operation, settings[operation.name]) for operation in GRAPH.operations]
        durations_s = tuple(cost.time_s for cost in costs)
        time_s = GRAPH.makespan_s(durations_s)
        waited_s = 4 * time_s - sum(durations_s)
        self.seen += 1
        readings = [self.reading(rank, durations_s, progress) for rank in range(4)]
        return readings, Measurement(time_s, sum(cost.energy_j for cost in costs) + WAITING_W * waited_s)

    def cost(self, operation, setting):
        cost = truth(operation.kind).cost(setting.sm_mhz)
        factor = self.straggler.get(operation.rank, 1.0) * self.random.gauss(1.0, self.noise)
        return Measurement(cost.time_s * factor, cost.energy_j * factor)

    def reading(self, rank, durations_s, progress):
        busy_s = sum(durations_s[place] for place in self.policy.graph.by_rank[rank])
        if not isinstance(progress, PlanProfiling) or self.seen % self.patience:
            return RankReading(self.number, rank, busy_s)
        setting = self.policy.settings[progress.place]
        kinds = dict.fromkeys(GRAPH.operations[place].kind for place in self.policy.graph.by_rank[rank])
        trials = tuple((kind, Trial(setting, self.noisy(truth(kind).cost(setting.sm_mhz)))) for kind in kinds)
        return RankReading(self.number, rank, busy_s, trials, WAITING_W)

    def noisy(self, cost):
        return Measurement(
            cost.time_s * self.random.gauss(1.0, self.noise), cost.energy_j * self.random.gauss(1.0, self.noise)
        )


def policy_for(slowdown=0.0, points=5, pipelines=1):
    return OnlinePlanning(
        graph=GRAPH,
        spec=SPEC,
        settings=profiling_settings(SPEC, points),
        slowdown=slowdown,
        pipelines=pipelines,
    )


def advanced(policy, progress, pipelines, iterations=1):
    """The progress after some iterations, and what the last of them took in each pipeline."""
    for _ in range(iterations):
        ran = [pipeline.run(progress) for pipeline in pipelines]
        readings = [reading for readings, _ in ran for reading in readings]
        numbers = [sum(column) for column in zip(*map(policy.encoded, readings), strict=True)]
        assert policy.decoded(progress, numbers) == readings
        progress = policy.step(progress, policy.decoded(progress, numbers))
    return progress, [cost for _, cost in ran]


def profiled(policy, *pipelines):
    """The first progress that holds a plan."""
    progress, iterations = policy.start(), 0
    while isinstance(progress, PlanProfiling):
        progress, _ = advanced(policy, progress, pipelines)
        iterations += 1
    return progress, iterations


def all_at(mhz):
    """What an iteration takes at one clock, without noise."""
    costs = [truth(operation.kind).cost(mhz) for operation in GRAPH.operations]
    durations_s = tuple(cost.time_s for cost in costs)
    time_s = GRAPH.makespan_s(durations_s)
    waited_s = 4 * time_s - sum(durations_s)
    return Measurement(time_s, sum(cost.energy_j for cost in costs) + WAITING_W * waited_s)


def test_profiling_goes_through_the_clocks_and_repeats_until_all_has_been_measured():
    policy = policy_for(points=4)
    pipeline = Pipeline(policy, patience=3)
    progress = policy.start()
    clocks = []
    while isinstance(progress, PlanProfiling):
        clocks.append(policy.steps(progress, pipeline=0, rank=1)[0].setting.sm_mhz)
        progress, _ = advanced(policy, progress, [pipeline])
    assert clocks == [mhz for mhz in (1410, 1230, 1035, 855) for _ in range(3)]


def test_the_plan_keeps_the_speed_and_spends_less():
    policy = policy_for(slowdown=0.0)
    pipeline = Pipeline(policy, noise=0.001)
    progress, iterations = profiled(policy, pipeline)
    assert iterations == 10
    _, (cost,) = advanced(policy, progress, [pipeline])
    assert cost.time_s <= 1.01 * all_at(1410).time_s
    assert cost.energy_j <= 0.95 * all_at(1410).energy_j


def test_the_plan_from_few_noisy_points_is_nearly_the_plan_of_the_truth():
    policy = policy_for(slowdown=0.1)
    progress, _ = profiled(policy, Pipeline(policy))
    clocks = [mhz for mhz in SPEC.sm_clocks_mhz if mhz >= 855]
    options = {kind: truth(kind).options(clocks) for kind in {operation.kind for operation in GRAPH.operations}}
    best = plan_pipeline(GRAPH, options, blocking_power_w=WAITING_W)
    _, (cost,) = advanced(policy, progress, [Pipeline(policy, noise=0.0)])
    allowed_s = 1.1 * best.fastest.cost.time_s
    assert cost.time_s <= 1.01 * allowed_s
    assert cost.energy_j <= 1.01 * best.within(allowed_s).cost.energy_j


def test_noise_moves_nothing():
    policy = policy_for(slowdown=0.05)
    pipeline = Pipeline(policy)
    progress, _ = profiled(policy, pipeline)
    for _ in range(100):
        after, _ = advanced(policy, progress, [pipeline])
        assert after.held == progress.held
        progress = after


@pytest.mark.parametrize("rank", range(4))
def test_a_straggling_rank_hurries_and_the_others_slow_down_until_it_recovers(rank):
    policy = policy_for()
    pipeline = Pipeline(policy)
    before, _ = profiled(policy, pipeline)
    before, _ = advanced(policy, before, [pipeline], 5)

    pipeline.straggler = {rank: 1.8}
    first, (unanswered,) = advanced(policy, before, [pipeline])
    assert first.held == before.held  # one outlier changes nothing
    answered, _ = advanced(policy, first, [pipeline])
    assert mean_mhz(policy, answered, rank) >= mean_mhz(policy, before, rank)
    others = [other for other in range(4) if other != rank]
    assert sum(mean_mhz(policy, answered, other) - mean_mhz(policy, before, other) for other in others) < -20
    _, (cost,) = advanced(policy, answered, [pipeline])
    assert cost.time_s <= 1.01 * unanswered.time_s
    assert cost.energy_j < unanswered.energy_j

    pipeline.straggler = {}
    back, _ = advanced(policy, answered, [pipeline], 2)
    assert back.held == before.held


def mean_mhz(policy, progress, rank):
    steps = policy.steps(progress, pipeline=0, rank=rank)
    return sum(step.setting.sm_mhz for step in steps) / len(steps)


@pytest.mark.parametrize(("most_solved", "surplus"), [(0, 0.04), (500, 0.005)], ids=["by sweeps", "solved"])
@pytest.mark.parametrize("factor", [1.1, 1.3, 1.8])
@pytest.mark.parametrize("rank", range(4))
def test_the_answer_to_a_straggler_is_nearly_as_good_as_a_new_frontier(rank, factor, most_solved, surplus, monkeypatch):
    monkeypatch.setattr(straggler, "MOST_SOLVED", most_solved)
    policy = policy_for()
    progress, _ = profiled(policy, Pipeline(policy, noise=0.0))
    pipeline = Pipeline(policy, noise=0.0, straggler={rank: factor})
    answered, _ = advanced(policy, progress, [pipeline], 2)
    slowed = {
        kind: [slowed_by(factor if kind.startswith(f"{rank}.") else 1.0, trial) for trial in trials]
        for kind, trials in progress.profile.items()
    }
    solved = plan_pipeline(GRAPH, slowed, blocking_power_w=progress.waiting_w).fastest.cost
    expected = policy.expected(answered, 0)
    assert expected.time_s <= (1 + 1e-6) * solved.time_s
    assert expected.energy_j <= (1 + surplus) * solved.energy_j


def slowed_by(factor, trial):
    return Trial(trial.choice, Measurement(trial.cost.time_s * factor, trial.cost.energy_j * factor))


def test_a_straggling_pipeline_moves_the_others_and_they_come_back():
    policy = policy_for(pipelines=2)
    one, two = Pipeline(policy, 0), Pipeline(policy, 1)
    before, _ = profiled(policy, one, two)
    two.straggler = {2: 1.3}
    answered, (unanswered, _) = advanced(policy, before, [one, two], 2)
    _, (cost, straggler) = advanced(policy, answered, [one, two])
    assert unanswered.time_s < cost.time_s <= 1.01 * straggler.time_s
    assert cost.energy_j < unanswered.energy_j
    two.straggler = {}
    back, _ = advanced(policy, answered, [one, two], 2)
    assert back.held == before.held


def test_one_slow_iteration_is_no_straggler():
    policy = policy_for()
    pipeline = Pipeline(policy)
    before, _ = profiled(policy, pipeline)
    pipeline.straggler = {1: 2.0}
    outlier, _ = advanced(policy, before, [pipeline])
    pipeline.straggler = {}
    after, _ = advanced(policy, outlier, [pipeline], 3)
    assert after.held == outlier.held == before.held


def test_every_rank_finds_the_same_progress_from_the_same_readings():
    policy, same = policy_for(), policy_for()
    pipeline = Pipeline(policy)
    progress, _ = profiled(policy, pipeline)
    readings, _ = pipeline.run(progress)
    assert policy.step(progress, readings) == same.step(progress, list(readings))


def test_what_is_expected_is_what_the_plan_says():
    policy = policy_for(slowdown=0.05)
    progress, _ = profiled(policy, Pipeline(policy, noise=0.0))
    assert isinstance(progress, PlanHeld)
    plan = progress.plans.within(1.05 * progress.plans.fastest.cost.time_s)
    assert policy.expected(progress, 0).time_s <= 1.05 * progress.plans.fastest.cost.time_s
    assert policy.expected(progress, 0).energy_j == pytest.approx(plan.cost.energy_j, rel=0.01)


def test_settings_to_profile_at():
    assert profiling_settings(SPEC, 2) == (Setting(1410), Setting(855))
    with pytest.raises(InputError, match="two clocks"):
        profiling_settings(SPEC, 1)
    with pytest.raises(InputError, match="not negative"):
        policy_for(slowdown=-0.1)


def test_choices_are_those_of_the_part():
    policy = policy_for()
    progress, _ = profiled(policy, Pipeline(policy))
    for choice in set(progress.held[0].choices):
        assert isinstance(choice, StageChoice)
        SPEC.check(choice.setting)


def test_two_processes_with_one_place_are_an_error_and_a_missing_one_is_left_out():
    policy = policy_for(pipelines=2)
    readings = [RankReading(1, 2, 0.5), RankReading(0, 3, 0.4)]
    numbers = [sum(column) for column in zip(*map(policy.encoded, readings), strict=True)]
    assert len(numbers) == policy.numbers
    assert policy.decoded(policy.start(), numbers) == readings[::-1]
    with pytest.raises(PlanError, match="several processes are rank 2 of pipeline 1"):
        policy.decoded(policy.start(), [2 * value for value in policy.encoded(readings[0])])
