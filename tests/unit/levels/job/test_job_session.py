"""A live run: submitted, profiled, reported, judged and ended, on simulated GPUs in virtual time."""

from dataclasses import replace

import pytest

from fakes import FakeGpu
from job_runs import JOB, Jobs, Stubborn, gpu_of, train
from wattune.core.errors import DeviceLost, InputError, NoPermission, SettingRefused, StoreError
from wattune.core.job import JobMemory, Outcome, StepAccount
from wattune.core.measurement import Measurement
from wattune.core.objective import Deadline
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.levels.job.gpus import job_gpu_of
from wattune.levels.job.options import JobKnob
from wattune.levels.job.profile import profiling_objective
from wattune.levels.job.session import Following, RecurringRun, is_out_of_memory
from wattune.levels.job.step_tally import of_all
from wattune.levels.job.view.comparison import compare
from wattune.workloads.catalog import make_workload


@pytest.fixture
def jobs(tmp_path):
    return Jobs(tmp_path)


def finished(jobs, session, *, steps=100, metrics=(0.3, 0.6, 0.8)):
    session.start()
    for metric in metrics:
        train(session, steps=steps)
        if not session.report(metric):
            break
    return session.end()


@pytest.mark.parametrize("knob", [JobKnob.POWER_LIMIT, JobKnob.SM_CLOCK])
def test_a_run_finds_its_setting_holds_it_and_leaves_the_gpu_as_it_was(jobs, knob):
    session = jobs.session(knob=knob)
    gpu = session.gpus[0]
    session.start()
    assert gpu.setting != DRIVER_DEFAULT
    while session.is_profiling:
        train(session, steps=50)
    held = session.setting
    assert gpu.setting == held
    assert session.report(0.5)
    assert not session.report(0.8)
    assert session.verdict.outcome is Outcome.REACHED
    run = session.end()
    assert gpu.setting == DRIVER_DEFAULT
    assert run.setting == held
    recorded = jobs.job_store.job_run(run.id).run
    assert recorded.outcome is Outcome.REACHED
    assert recorded.metrics == (0.5, 0.8)
    assert recorded.setting == held
    assert 0 < recorded.profiling.energy_j < recorded.cost.energy_j
    assert recorded.cost.energy_j == pytest.approx(gpu.truth_j, rel=0.02)
    assert jobs.warnings == []


def test_the_setting_that_is_held_is_nearly_the_best(jobs):
    session = jobs.session(knob=JobKnob.SM_CLOCK)
    session.start()
    while session.is_profiling:
        train(session, steps=50)
    objective, workload = JOB.objective_on(session.run.gpu.max_power_w), make_workload("resnet50:64")
    gpu = session.gpus[0]

    def value(setting):
        gpu.apply(setting)
        before_s, before_j = gpu.count().time_s, gpu.truth_j
        gpu.run(workload, iterations=30)
        return objective.value(Measurement(gpu.count().time_s - before_s, gpu.truth_j - before_j))

    best = min(value(Setting(sm_mhz=mhz)) for mhz in gpu.spec.sm_clocks_mhz[::3])
    assert value(session.setting) < 1.02 * best


def test_the_profile_is_of_whole_epochs_and_spares_the_next_run_the_search(jobs):
    first = finished(jobs, jobs.session(), steps=400)
    profile = jobs.job_store.job_memory("nightly").profile(first.gpu, 64)
    known = next(trial.cost for trial in profile.trials if trial.choice == first.setting)
    second_session = jobs.session()
    second = finished(jobs, second_session, steps=400)
    assert second.setting == first.setting
    assert first.profiling.time_s > 0
    assert second.profiling.time_s == 0
    assert second.cost.time_s / 3 == pytest.approx(known.time_s, rel=0.02)
    assert second.cost.energy_j / 3 == pytest.approx(known.energy_j, rel=0.02)


def test_a_profile_of_another_batch_size_helps(jobs):
    first = finished(jobs, jobs.session(), steps=400)
    second = finished(jobs, jobs.session(searcher=Stubborn(128)), steps=400)
    assert second.batch_size == 128
    assert second.profiling.time_s < 2 * first.profiling.time_s  # whose iterations took half as long
    assert jobs.job_store.job_memory("nightly").profile(second.gpu, 128).trials


def test_a_profile_whose_epochs_became_longer_is_brought_up_to_date(jobs):
    finished(jobs, jobs.session(), steps=400)
    longer = finished(jobs, jobs.session(), steps=430)
    assert longer.profiling.time_s == 0
    profile = jobs.job_store.job_memory("nightly").profile(longer.gpu, 64)
    known = next(trial.cost for trial in profile.trials if trial.choice == longer.setting)
    assert known.time_s == pytest.approx(longer.cost.time_s / 3, rel=0.02)


def test_epochs_with_much_validation_are_checked_as_a_whole(jobs):
    def validated(session):
        session.start()
        for metric in (0.3, 0.6, 0.8):
            train(session, steps=400)
            session.gpus[0].idle(10.0)
            session.report(metric)
        return session.end()

    assert validated(jobs.session()).profiling.time_s > 0
    assert validated(jobs.session()).profiling.time_s == 0


def test_a_job_that_became_another_is_profiled_again(jobs):
    finished(jobs, jobs.session(), steps=400)
    session = jobs.session()
    session.start()
    other = make_workload("bert-base:8")
    for _ in range(4):
        train(session, steps=600, workload=other)
        session.report(0.1)
    assert session.end().profiling.time_s > 0


def test_epochs_of_forty_iterations_are_profiled_too(jobs):
    session = jobs.session(job=replace(JOB, max_epochs=200))
    session.start()
    for _ in range(150):
        train(session, steps=40)
        session.gpus[0].idle(0.2)  # validation
        session.report(0.1)
        if not session.is_profiling:
            break
    assert not session.is_profiling
    assert session.setting is not None
    session.end()


def test_without_steps_every_epoch_is_a_window(jobs):
    session = jobs.session()
    session.start()
    settings = []
    for _ in range(11):
        session.gpus[0].run(make_workload("resnet50:64"), iterations=100)
        settings.append(session.setting)
        session.report(0.1)
    assert not session.is_profiling
    assert len(set(settings)) > 2
    assert settings[-1] == settings[-2]
    run = session.end()
    profile = jobs.job_store.job_memory("nightly").profile(run.gpu, 64)
    assert {trial.choice for trial in profile.trials} == set(
        settings[1 : 1 + len(profile.trials)]
    )  # not the first, with its start


def test_a_run_of_iterations_without_epochs_is_profiled_as_it_goes(jobs):
    session = jobs.session()
    session.start()
    train(session, steps=3000)
    assert not session.is_profiling
    session.end()


def test_several_gpus_are_set_alike_and_cost_what_they_cost_together(jobs):
    gpus = gpu_of(), gpu_of()
    session = jobs.session(*gpus)
    assert session.start().gpu.count == 2
    assert session.run.gpu.max_power_w == 800.0
    while session.is_profiling:
        train(session, steps=50)
        assert gpus[0].setting == gpus[1].setting
    session.report(0.9)
    assert session.run.cost.energy_j == pytest.approx(gpus[0].truth_j + gpus[1].truth_j, rel=0.02)
    session.end()


def test_gpus_of_different_kinds_are_refused():
    with pytest.raises(InputError, match="of one kind"):
        job_gpu_of((gpu_of(), gpu_of("v100")))
    with pytest.raises(InputError, match="needs a GPU"):
        job_gpu_of(())


class Capped(type(gpu_of())):
    """A simulated GPU whose administrator has set a lower limit, and which refuses some of them."""

    def __init__(self, *, cap_w=None, refused=(), error=None):
        super().__init__(gpu_of().model)
        self.cap_w, self.refuses, self.error, self.asked = cap_w, refused, error, []

    def read(self):
        reading = super().read()
        return reading if self.cap_w is None else replace(reading, power_limit_w=self.cap_w)

    def apply(self, setting):
        self.asked.append(setting)
        if self.error is not None and setting != DRIVER_DEFAULT:
            raise self.error
        if setting.power_limit_w in self.refuses:
            raise SettingRefused(f"no limit of {setting.power_limit_w:g} W today")
        super().apply(setting)


def test_the_cap_of_an_administrator_is_never_exceeded(jobs):
    gpu = Capped(cap_w=250.0)
    finished(jobs, jobs.session(gpu))
    limits = [setting.power_limit_w for setting in gpu.asked if setting != DRIVER_DEFAULT]
    assert limits
    assert max(limits) == 250.0


def test_a_refused_limit_is_dropped_and_the_search_goes_on(jobs):
    gpu = Capped(refused=(400.0, 250.0))
    run = finished(jobs, jobs.session(gpu), steps=600)
    assert run.outcome is Outcome.REACHED
    assert run.setting is not None
    assert run.setting.power_limit_w not in (400.0, 250.0)
    assert any("no limit of 400 W" in line for line in jobs.warnings)


def test_without_permission_the_run_is_measured_and_nothing_is_set(jobs):
    run = finished(jobs, jobs.session(Capped(error=NoPermission("the driver wants root", hint="be root"))))
    assert run.outcome is Outcome.REACHED
    assert run.setting is None
    assert run.cost.energy_j > 0
    assert len([line for line in jobs.warnings if "wants root" in line]) == 1


def test_a_gpu_that_falls_silent_does_not_end_the_training(jobs):
    gpu = FakeGpu(power_w=200.0)
    session = jobs.session(gpu)
    session.start()
    gpu.wait(5.0)
    session.report(0.3)
    spent = session.run.cost

    def lost():
        raise DeviceLost("the GPU is gone")

    gpu.count = lost
    session.step(50)
    session.step(50)
    assert not session.report(0.9)
    assert session.verdict.outcome is Outcome.REACHED
    assert session.end().cost == spent


@pytest.mark.parametrize("metric", [float("nan"), float("inf"), None, 10**400])
def test_a_report_that_is_no_number_is_an_epoch_without_a_metric(jobs, metric):
    session = jobs.session()
    session.start()
    assert session.report(metric)
    run = session.end()
    assert run.metrics == (None,)
    assert jobs.job_store.job_run(run.id).run.metrics == (None,)
    assert run.outcome is Outcome.MISSED


def test_a_report_of_something_else_is_one_line(jobs):
    session = jobs.session()
    session.start()
    with pytest.raises(InputError, match="'good' is no metric"):
        session.report("good")
    session.end()


def test_a_report_after_the_end_changes_nothing(jobs):
    run = finished(jobs, session := jobs.session())
    assert not session.report(0.99)
    assert session.verdict.outcome is Outcome.REACHED
    assert jobs.job_store.job_run(run.id).run.metrics == run.metrics == (0.3, 0.6, 0.8)
    assert any("after the run had ended" in line for line in jobs.warnings)


def test_a_run_that_cannot_win_is_stopped_and_another_takes_its_place(jobs):
    session = jobs.session(searcher=Stubborn(patience=2))
    run = finished(jobs, session, metrics=(0.1, 0.2, 0.3))
    assert (run.outcome, session.stopped, session.reached) == (Outcome.STOPPED, True, False)
    assert session.why == "it cannot win any more"
    second = jobs.session()
    second.start(replaces=run.id)
    assert second.run.recurrence == run.recurrence
    second.end()


def test_the_epochs_that_a_job_allows_are_all_it_gets(jobs):
    run = finished(jobs, jobs.session(), steps=1, metrics=[0.1] * 20)
    assert (run.outcome, run.epochs) == (Outcome.MISSED, JOB.max_epochs)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, Outcome.MISSED),
        (ValueError("broken"), Outcome.CRASHED),
        (KeyboardInterrupt(), Outcome.CRASHED),
        (SystemExit(143), Outcome.CRASHED),
        (RuntimeError("CUDA error: out of memory"), Outcome.OUT_OF_MEMORY),
        (type("OutOfMemoryError", (RuntimeError,), {})("no room"), Outcome.OUT_OF_MEMORY),
    ],
)
def test_how_a_run_ends_follows_from_the_error(jobs, error, outcome):
    session = jobs.session()
    session.start()
    session.report(0.2)
    run = session.end(error=error)
    assert jobs.job_store.job_run(run.id).run.outcome is run.outcome is outcome
    assert session.gpus[0].setting == DRIVER_DEFAULT


def test_out_of_memory_is_seen_through_the_error_that_was_raised_from_it():
    outer = ValueError("training failed")
    outer.__cause__ = RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
    assert is_out_of_memory(outer)
    assert not is_out_of_memory(None)


def test_a_run_without_any_epoch_says_nothing_of_its_batch_size(jobs):
    session = jobs.session()
    session.start()
    assert session.end().outcome is Outcome.CRASHED


def test_an_ending_that_others_name_stands_but_for_a_verdict(jobs):
    session = jobs.session()
    session.start()
    assert session.end(Outcome.OUT_OF_MEMORY).outcome is Outcome.OUT_OF_MEMORY
    reached = jobs.session()
    finished(jobs, reached)
    assert reached.end(Outcome.CRASHED).outcome is Outcome.REACHED


def test_a_run_that_was_replaced_meanwhile_is_asked_to_end(jobs):
    session = jobs.session()
    run = session.start()
    other = jobs.session()
    other.start(replaces=run.id)
    assert not session.report(0.9)
    assert session.verdict.outcome is Outcome.LOST
    session.end()
    other.end()
    assert jobs.job_store.job_run(run.id).run.outcome is Outcome.LOST


def test_a_store_that_cannot_be_opened_does_not_keep_anybody_from_training(jobs, tmp_path):
    (tmp_path / "file").write_text("no folder")
    store_access = jobs.store_access(store_url=f"sqlite:///{tmp_path}/file/history.db")
    run = finished(jobs, jobs.session(store_access=store_access))
    assert (run.batch_size, run.outcome) == (JOB.default_batch_size, Outcome.REACHED)
    assert sum("this run has the default batch size 64, without the history" in line for line in jobs.warnings) == 1
    assert sum("how the run ended is kept in" in line for line in jobs.warnings) == 1


def test_a_store_that_fails_on_the_way_is_made_up_for_at_the_end(jobs, monkeypatch):
    session = jobs.session()
    run = session.start()
    job_store = type(jobs.job_store)

    def away(*_, **__):
        raise StoreError("the disk is full", hint="make room")

    with monkeypatch.context() as broken:
        for name in ("report", "job_memory", "keep_profile"):
            broken.setattr(job_store, name, away)
        session.report(0.2)
        session.report(0.4)
    session.report(0.8)
    session.end()
    assert jobs.job_store.job_run(run.id).run.metrics == (0.2, 0.4, 0.8)
    assert sum("the disk is full" in line for line in jobs.warnings) == 1


def test_an_end_that_cannot_be_written_is_taken_in_by_the_next_submission(jobs, monkeypatch):
    session = jobs.session()
    run = session.start()

    def away(*_, **__):
        raise StoreError("the disk is full", hint="make room")

    with monkeypatch.context() as broken:
        broken.setattr(type(jobs.job_store), "add_ended_run", away)
        session.report(0.8)
        session.end()
    assert jobs.job_store.job_run(run.id).run.outcome is Outcome.RUNNING
    after = jobs.session()
    after.start()
    assert jobs.job_store.job_run(run.id).run.outcome is Outcome.REACHED
    after.end()


def test_the_lease_is_renewed_while_an_epoch_lasts(jobs):
    store_access = jobs.store_access(lease_s=1000.0)
    session = jobs.session(store_access=store_access)
    run = session.start()
    before = jobs.job_store.job_run(run.id).lease_until
    assert store_access.renew(run)
    assert jobs.job_store.job_run(run.id).lease_until > before
    session.end()
    assert not store_access.renew(run)


def test_nothing_can_be_done_before_the_start(jobs):
    session = jobs.session()
    for act in (lambda: session.run, lambda: session.report(0.5), session.end):
        with pytest.raises(InputError, match="has not begun"):
            act()


def test_a_deadline_is_shared_by_the_epochs_to_be_expected(jobs):
    job = replace(JOB, objective="deadline:120s")
    gpu = job_gpu_of((gpu_of(),))
    assert profiling_objective(job, gpu, JobMemory(), 64) == Deadline(10.0)
    run = finished(jobs, jobs.session(job=job))
    assert run.epochs == 3
    assert profiling_objective(job, gpu, jobs.job_store.job_memory("nightly"), 64) == Deadline(40.0)


def test_a_run_too_short_for_its_search_leaves_a_profile_that_the_next_one_continues(jobs):
    known = []
    for _ in range(3):
        run = finished(jobs, jobs.session(), steps=100, metrics=(0.3, 0.8))
        profile = jobs.job_store.job_memory("nightly").profile(run.gpu, 64)
        known.append(len(profile.trials))
    assert known[0] >= 1
    assert known == sorted(known)
    assert known[-1] > known[0]
    assert run.profiling.time_s < 0.6 * run.cost.time_s
    assert jobs.warnings == []


def followed(jobs, **changes):
    """A session whose counters are polled, as `wattune job run` does."""
    gpu = gpu_of()
    job = replace(JOB, objective="energy:5%", max_epochs=100)
    return RecurringRun(
        job,
        (gpu,),
        store_access=jobs.store_access(job),
        knob=JobKnob.SM_CLOCK,
        warn=jobs.warnings.append,
        polled_s=0.02,
        **changes,
    )


def steps_of(session, count, *, slower_s=0.0):
    """Let a program train so many steps, with work of its own in each, and look at the counters meanwhile."""
    for _ in range(count):
        session.gpus[0].run(make_workload("resnet50:64"))
        session.gpus[0].idle(slower_s)
        session.poll()
        session.step()


def compared(jobs):
    found = compare(jobs.job_store.job_memory("nightly").runs, 64)
    assert not isinstance(found, str), found
    return found


def test_start_and_pauses_are_not_in_the_account_of_steps(jobs):
    session = followed(jobs)
    session.start()
    gpu = session.gpus[0]
    gpu.idle(300.0)
    session.poll()
    for metric in (*[0.1] * 11, 0.8):
        steps_of(session, 100)
        gpu.idle(30.0)
        session.poll()
        session.report(metric)
    run = session.end()
    account = run.steps
    assert (account.total, account.unit, account.why_not) == (1200, "step", None)
    assert account.count > 1100
    assert account.cost.time_s / account.count == pytest.approx(0.0714, rel=0.02)
    assert account.default_cost.time_s / account.default_count == pytest.approx(0.0684, rel=0.003)
    assert run.cost.time_s > 300 + 12 * 30
    assert jobs.job_store.job_run(run.id).run.steps == account
    energy = compared(jobs).more(lambda cost: cost.energy_j)
    assert -15 < energy.percent < -8
    assert energy.error_percent < 1.5


def test_a_program_that_is_slow_at_first_gets_no_saving_for_becoming_faster(jobs):
    session = followed(jobs)
    session.start()
    steps_of(session, 150, slower_s=0.03)  # it compiles and fills caches, in just the window of the default
    for metric in (*[0.1] * 11, 0.8):
        steps_of(session, 100)
        session.report(metric)
    account = session.end().steps
    slower = compared(jobs).more(lambda cost: cost.time_s)
    assert slower.percent == pytest.approx(100 * (account.cost.time_s / account.count / 0.0684 - 1), abs=0.2)
    assert 2.0 < slower.percent < 5.0
    assert slower.error_percent < 1.0
    assert session.setting.sm_mhz > 1100


def test_a_program_that_follows_no_clock_is_measured_and_nothing_is_set_for_it(jobs):
    session = followed(jobs, following=Following(refused="it does not follow"))
    session.start()
    steps_of(session, 100)
    assert session.setting is None
    session.report(0.8)
    run = session.end()
    assert run.cost.energy_j > 0
    assert run.steps == StepAccount(why_not="it does not follow")
    assert compare((run,), 64) == "it does not follow"


def test_beside_a_gpu_that_only_steps_follow_epochs_show_nothing(jobs):
    session = followed(jobs, following=Following(needs_steps="no optimizer was seen"))
    session.start()
    for metric in (0.1, 0.2, 0.3, 0.8):
        session.gpus[0].run(make_workload("resnet50:64"), iterations=100)
        session.report(metric)
    run = session.end()
    assert jobs.job_store.job_memory("nightly").profiles == ()
    assert run.steps == StepAccount(why_not="no optimizer was seen")


def test_without_steps_whole_epochs_are_compared_without_the_first(jobs):
    def trained(session):
        session.start()
        session.gpus[0].idle(500.0)
        for metric in (*[0.1] * 11, 0.8):
            session.gpus[0].run(make_workload("resnet50:64"), iterations=300)
            session.report(metric)
        return session.end()

    run = trained(jobs.session(knob=JobKnob.SM_CLOCK))
    assert (run.steps.unit, run.steps.total, run.steps.count) == ("epoch", 12, 11)
    assert run.steps.default_cost.time_s / run.steps.default_count == pytest.approx(300 * 0.0684, rel=0.01)
    assert compared(jobs).unit == "epoch"


def test_the_accounts_of_ranks_are_of_all_their_gpus():
    account = StepAccount(
        total=10, count=8, cost=Measurement(4.0, 800.0, 0.0, 8.0), default_count=2, default_cost=Measurement(1.0, 300.0)
    )
    both = of_all(account, (500.0, 700.0))
    assert (both.cost, both.default_cost) == (Measurement(4.0, 2000.0, 0.0, 20.0), Measurement(1.0, 700.0))
