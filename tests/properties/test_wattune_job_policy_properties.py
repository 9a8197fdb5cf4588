"""Whatever the history, the searcher answers with a size that may be used, and the same one every time."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from synthetic_job import GPU, JOB, World, ended, remembered
from wattune.core.job import JobGpu, Outcome
from wattune.levels.job.policy import WattuneJobPolicy

SEARCHER = WattuneJobPolicy()
OTHER = JobGpu(name="a40", simulated=True, max_power_w=300.0)

ENDS = st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.RUNNING])


@st.composite
def histories(draw):
    runs = []
    for order in range(draw(st.integers(0, 12))):
        outcome = draw(st.sampled_from(list(Outcome)))
        epochs = draw(st.integers(1 if outcome is Outcome.REACHED else 0, 60))
        run = ended(
            order,
            draw(st.sampled_from(JOB.batch_sizes)),
            epochs,
            outcome=outcome,
            whole=epochs * draw(st.floats(1.0, 5.0)) or 1.0,
            recurrence=draw(st.integers(0, order)),
            exploring=draw(st.booleans()),
            gpu=draw(st.sampled_from([GPU, OTHER])),
        )
        if draw(st.integers(0, 5)) == 0:
            run = replace(run, metrics=(None,) * run.epochs)
        runs.append(run)
    return tuple(runs)


@settings(max_examples=60, deadline=None)
@given(histories(), st.sampled_from([GPU, OTHER]), st.sampled_from(["cost:0.5", "edp", "deadline:900s", "energy:5%"]))
def test_any_history_has_an_answer(runs, gpu, objective):
    job = replace(JOB, objective=objective)
    memory = remembered(*runs)
    proposal = SEARCHER.propose(job, memory, gpu)
    assert proposal.batch_size in job.batch_sizes
    assert proposal.why
    assert proposal == SEARCHER.propose(job, memory, gpu)
    refused = [run.batch_size for run in runs if run.outcome is Outcome.OUT_OF_MEMORY and run.gpu == gpu]
    has_fitted = any(run.epochs and run.batch_size >= min(refused, default=0) for run in runs)  # perhaps later
    if refused and not has_fitted and min(refused) > job.batch_sizes[0]:
        assert proposal.batch_size < min(refused)


@settings(max_examples=60, deadline=None)
@given(histories(), st.integers(1, 99), st.sampled_from(JOB.batch_sizes), st.booleans())
def test_any_run_can_be_judged(runs, epochs, size, exploring):
    run = ended(len(runs), size, epochs, outcome=Outcome.RUNNING, whole=100.0, exploring=exploring)
    answer = SEARCHER.stop(JOB, remembered(*runs), run)
    assert answer is None or answer
    if not any(other.outcome is Outcome.REACHED for other in runs):
        assert answer is None


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.0, 0.3), st.sampled_from([64, 128, 256, 512, 1024]))
def test_no_noise_and_no_default_makes_it_stuck_or_ruinous(seed, noise, default):
    world = World(SEARCHER, job=replace(JOB, default_batch_size=default), noise=noise, seed=seed)
    costs = world.recur(12)
    reference = world.value(world.memory.profiles[0].trials[0].cost) * (world.epochs[default] or 1.0)
    assert sum(costs) <= 1.4 * len(costs) * reference


@settings(max_examples=20, deadline=None)
@given(st.lists(st.none() | st.integers(10, 90), min_size=len(JOB.batch_sizes), max_size=len(JOB.batch_sizes)))
def test_without_luck_the_safe_policy_never_exceeds_its_budget(needed):
    default = JOB.default_batch_size
    epochs = dict(zip(JOB.batch_sizes, needed, strict=True)) | {default: 40}
    world = World(WattuneJobPolicy(safe=True), epochs=epochs, noise=0.0)
    costs = world.recur(20)
    reference = world.value(world.memory.profiles[0].trials[0].cost) * 40
    assert all(sum(costs[:count]) <= 1.05 * count * reference for count in range(1, 21))
