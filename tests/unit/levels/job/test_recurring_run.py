"""`with recurring_job(...) as run`: the handle in training code."""

import signal

import pytest

import wattune
from wattune.api import recurring_job
from wattune.core.errors import InputError
from wattune.core.job import Outcome
from wattune.core.setting import DRIVER_DEFAULT
from wattune.process.step_file import UNFOLLOWED, unfollowing_environment
from wattune.store.sql_store import open_store
from wattune.workloads.catalog import make_workload


@pytest.fixture(autouse=True)
def settings(tmp_path, monkeypatch):
    for name, where in (("STORE", "history.db"), ("STATE", "state"), ("CONFIG", "config.toml")):
        monkeypatch.setenv(f"WATTUNE_{name}", str(tmp_path / where))
    return tmp_path


@pytest.fixture
def job_store(settings):
    return open_store(f"sqlite:///{settings}/history.db").jobs


def job(**changes):
    options = {
        "target": 0.75,
        "batch_sizes": (32, 64, 128),
        "default": 64,
        "max_epochs": 8,
        "devices": ["sim:a100"],
        "knob": "power-limit",
    }
    return recurring_job("nightly", **(options | changes))


def test_epochs_end_when_the_target_is_reached(job_store):
    with job() as run:
        gpu, workload = run.gpus[0], make_workload(f"resnet50:{run.batch_size}")
        for epoch in run.epochs():
            for batch in run.steps(range(300)):
                assert 0 <= batch < 300
                gpu.run(workload)
            run.report(0.3 + 0.2 * epoch)
    assert (run.reached, run.stopped, run.outcome, epoch) == (True, False, Outcome.REACHED, 3)
    assert run.why == "the target 0.75 is reached after 4 epochs"
    assert run.cost.energy_j > run.profiling.energy_j > 0
    assert gpu.setting == DRIVER_DEFAULT
    assert job_store.job_run(run.id).run.outcome is Outcome.REACHED
    assert run.batch_size == run.local_batch_size == 64


def test_a_program_that_does_not_follow_its_simulated_gpu_claims_nothing(emulated_node, monkeypatch, caplog):
    node = emulated_node("a100")
    for name, value in unfollowing_environment({}).items():
        monkeypatch.setenv(name, value)
    with job(devices=["nvml:0"]) as run:
        for epoch in run.epochs():
            for _ in run.steps(range(300)):
                node.advance(0.02)
            run.report(0.3 + 0.2 * epoch)
    assert run.run.steps.why_not == UNFOLLOWED
    assert run.run.setting is None
    assert UNFOLLOWED in caplog.messages


def test_epochs_end_when_there_were_enough_whether_or_not_anything_was_reported(job_store):
    with job(max_epochs=3) as run:
        assert list(run.epochs()) == [0, 1, 2]
    assert run.outcome is Outcome.MISSED
    assert job_store.job_run(run.id).run.metrics == (None, None, None)


def test_only_the_first_report_of_an_epoch_counts(job_store, caplog):
    with job(max_epochs=2) as run:
        for _ in run.epochs():
            assert run.report(0.5) is (run.outcome is Outcome.RUNNING)
            run.report(0.9)
    assert job_store.job_run(run.id).run.metrics == (0.5, 0.5)
    assert "reported twice" in caplog.text
    assert "after the run had ended" in caplog.text


def test_without_epochs_every_report_ends_one(job_store):
    with job() as run:
        assert run.report(0.2)
        assert run.report(0.4)
        assert not run.report(0.8)
        assert not run.report(0.9)
    assert job_store.job_run(run.id).run.metrics == (0.2, 0.4, 0.8)


def test_leaving_the_loop_early_is_a_miss_and_the_epoch_without_report_is_none(job_store):
    with job() as run:
        for epoch in run.epochs():
            if epoch == 2:
                break
            run.report(0.1)
    assert job_store.job_run(run.id).run.outcome is Outcome.MISSED
    assert job_store.job_run(run.id).run.metrics == (0.1, 0.1)


@pytest.mark.parametrize(
    ("error", "outcome"), [(ZeroDivisionError, Outcome.CRASHED), (KeyboardInterrupt, Outcome.CRASHED)]
)
def test_an_error_goes_through_and_is_kept_in_the_history(job_store, error, outcome):
    with pytest.raises(error), job() as run:
        raise error
    assert job_store.job_run(run.id).run.outcome is outcome
    assert run.gpus[0].setting == DRIVER_DEFAULT


def test_a_batch_that_does_not_fit_is_remembered(job_store):
    with pytest.raises(RuntimeError), job() as run:
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
    assert job_store.job_run(run.id).run.outcome is Outcome.OUT_OF_MEMORY


def test_a_run_that_is_asked_to_end_is_no_verdict_on_its_batch_size(job_store):
    with pytest.raises(SystemExit), job() as run:
        signal.raise_signal(signal.SIGTERM)
    assert job_store.job_run(run.id).run.outcome is Outcome.CRASHED


def test_learning_rates_follow_the_batch_size():
    with job(batch_sizes=(64,)) as run:
        assert run.learning_rate(0.1, at=16, rule="linear") == pytest.approx(0.4)
        assert run.learning_rate(0.1, at=16, rule="sqrt") == pytest.approx(0.2)
        for wrong in ({"at": 16, "rule": "cubic"}, {"at": 0, "rule": "linear"}):
            with pytest.raises(InputError):
                run.learning_rate(0.1, **wrong)


def test_the_searcher_as_published_can_be_had(job_store):
    with job(searcher="zeus") as run:
        assert run.exploring
        assert "pruning" in run.why
    with pytest.raises(InputError) as caught:
        job(searcher="zeuss").__enter__()
    assert caught.value.hint.startswith("did you mean zeus?")


def test_nothing_is_set_where_nobody_wants_that():
    with job(knob="none") as run:
        assert not run.is_profiling
        assert run.setting is None
        for _ in run.epochs():
            run.gpus[0].run(make_workload("resnet50:64"), iterations=10)
            run.report(0.8)
    assert run.profiling.energy_j == 0
    assert run.cost.energy_j > 0


def test_the_public_name_is_the_same_function():
    assert wattune.recurring_job is recurring_job


class Pair:
    """Two ranks, of which only one is asked."""

    rank, size = 0, 2


def test_ranks_have_to_name_their_gpu_and_share_batches_evenly():
    with pytest.raises(InputError, match="name the GPU of each rank"):
        job(ranks=Pair(), devices=()).__enter__()
    with pytest.raises(InputError, match="cannot share 33 evenly"):
        job(ranks=Pair(), batch_sizes=(33, 64)).__enter__()
