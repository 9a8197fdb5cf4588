"""`wattune bench job --short`: ten runs of a short job, by the shipped session, profiler and policy.

The GPU is simulated, in virtual time, and the store is a file of its own. A job is so long that a run at the default
batch size and setting takes 15, 20, 40 or 80 seconds. What ten runs cost, learning included, is compared with ten
default runs, and with ten at the batch size and power limit that are best, which nobody knows beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from wattune.core.job import Job, Outcome
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.simulated import SimulatedGpu
from wattune.levels.job.gpus import job_settings
from wattune.levels.job.options import JobKnob
from wattune.levels.job.policy import WattuneJobPolicy
from wattune.levels.job.session import RecurringRun
from wattune.levels.job.store_access import JobStoreAccess
from wattune.physics.catalog import load_model
from wattune.store.worker import StoreWorker
from wattune.workloads.catalog import make_workload
from wattune_bench.result import Bench, Row, at_most

LENGTHS_S = (15.0, 20.0, 40.0, 80.0)
RUNS = 10
GPUS = ("v100", "a100")
EPOCHS = {16: 6, 32: 5, 64: 5, 128: 6, 256: 8}
"""By batch size: the usual shape, with the cheapest size above the default."""

DEFAULT = 32
_ATTEMPTS = 5
_PROBE = 20


@dataclass(frozen=True, slots=True)
class ShortJob:
    """A job on a simulated GPU; a run with the default takes so many seconds."""

    gpu: str
    length_s: float
    network: str = "resnet50"
    epochs: tuple[tuple[int, int], ...] = tuple(EPOCHS.items())

    @property
    def job(self) -> Job:
        return Job(name="short", batch_sizes=tuple(EPOCHS), default_batch_size=DEFAULT, target=0.9, max_epochs=16)

    def new_gpu(self, seed: int) -> SimulatedGpu:
        return SimulatedGpu(load_model(self.gpu), seed=seed)

    def iterations(self, size: int) -> int:
        """Return the iterations of an epoch."""
        default_s = self.iteration(DEFAULT, DRIVER_DEFAULT).time_s
        samples = self.length_s / dict(self.epochs)[DEFAULT] / default_s * DEFAULT
        return max(round(samples / size), 1)

    def iteration(self, size: int, setting: Setting) -> Measurement:
        """Return the true cost of an iteration, once the GPU is warm."""
        gpu = self.new_gpu(0)
        gpu.apply(setting)
        workload = make_workload(f"{self.network}:{size}")
        gpu.run(workload, iterations=_PROBE)
        before_s, before_j = gpu.count().time_s, gpu.truth_j
        gpu.run(workload, iterations=_PROBE)
        return Measurement((gpu.count().time_s - before_s) / _PROBE, (gpu.truth_j - before_j) / _PROBE)

    def run_cost(self, size: int, setting: Setting) -> Measurement:
        """Return the true cost of a run at one batch size and setting."""
        return self.iteration(size, setting) / (1.0 / (self.iterations(size) * dict(self.epochs)[size]))


def bench_short_jobs(
    lengths_s: Sequence[float] = LENGTHS_S, *, gpus: Sequence[str] = GPUS, runs: int = RUNS, seeds: int = 1
) -> Bench:
    """Play short jobs and return what they cost."""
    rows = tuple(
        _played(ShortJob(gpu, length_s), runs=runs, seed=seed)
        for gpu in gpus
        for length_s in lengths_s
        for seed in range(seeds)
    )
    worst = max(rows, key=lambda row: row["of_default"])
    return Bench(
        bench="job --short",
        simulated=True,
        rows=rows,
        goals=(
            at_most(
                f"cost of {runs} runs over that of default runs, learning included, worst of {len(rows)} simulated "
                f"jobs ({worst['gpu']}, {worst['length_s']:g} s)",
                worst["of_default"],
                1.0,
            ),
        ),
        notes=("simulated GPUs in virtual time; the oracle knows the best batch size and limit from the start.",),
    )


def _played(short: ShortJob, *, runs: int, seed: int) -> Row:
    job = short.job
    gpu = short.new_gpu(seed)
    limits = gpu.spec.power_limits
    objective = job.objective_on(0.0 if limits is None else limits.max_w)
    settings = job_settings(gpu.spec, JobKnob.POWER_LIMIT, limit_w=None if limits is None else limits.default_w)
    oracle = min(objective.value(short.run_cost(size, at)) for size in job.batch_sizes for at in settings)
    default = objective.value(short.run_cost(job.default_batch_size, DRIVER_DEFAULT))
    with TemporaryDirectory() as folder:
        done = _runs(short, job, gpu, Path(folder), runs)
    spent = [sum(objective.value(cost) for cost in costs) for costs, _ in done]
    sizes = [tried for _, some in done for tried in some]
    return {
        "gpu": short.gpu,
        "length_s": short.length_s,
        "seed": seed,
        "of_default": sum(spent) / (runs * default),
        "of_oracle": sum(spent) / (runs * oracle),
        "last_of_default": spent[-1] / default,
        "last_of_oracle": spent[-1] / oracle,
        "default_of_oracle": default / oracle,
        "batch_sizes_tried": len(set(sizes)),
        "batch_sizes": sizes,
    }


def _runs(
    short: ShortJob, job: Job, gpu: SimulatedGpu, folder: Path, runs: int
) -> list[tuple[list[Measurement], list[int]]]:
    """Run the job so many times; return the costs and batch sizes of each recurrence."""
    worker = StoreWorker(f"sqlite:///{folder}/history.db", wait_s=60.0)
    access = JobStoreAccess(job, WattuneJobPolicy(), worker=worker, state_dir=folder, warn=_silent, patience_s=60.0)
    done: list[tuple[list[Measurement], list[int]]] = []
    for _ in range(runs):
        costs, sizes, replaces = [], [], None
        for _ in range(_ATTEMPTS):
            live = RecurringRun(job, (gpu,), store_access=access, knob=JobKnob.POWER_LIMIT, warn=_silent)
            before_s, before_j = gpu.count().time_s, gpu.truth_j
            size = live.start(replaces=replaces).batch_size
            _train(short, live, gpu, size)
            ended = live.end()
            costs.append(Measurement(gpu.count().time_s - before_s, gpu.truth_j - before_j))
            sizes.append(size)
            replaces = ended.id
            if ended.outcome is Outcome.REACHED:
                break
        done.append((costs, sizes))
    return done


def _train(short: ShortJob, live: RecurringRun, gpu: SimulatedGpu, size: int) -> None:
    workload, whole = make_workload(f"{short.network}:{size}"), dict(short.epochs)[size]
    going, epoch = True, 0
    while going:
        for _ in range(short.iterations(size)):
            gpu.run(workload)
            live.step()
        epoch += 1
        going = live.report(0.9 * min(epoch / whole, 1.0) ** 0.4)


def _silent(text: str) -> None:
    del text
