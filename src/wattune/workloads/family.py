"""Seventy-one training jobs that stand in for the two suites on which GPOEO (Wang et al. 2022) was judged.

Seventeen are the tasks of AIBench Training, one each; fifty-four are six kinds of graph network on nine data sets of
Dwivedi et al. 2020. What a paper does not say of a program is drawn from the seed: its batch size around the usual
one, how long it waits for data, how much host time each kernel costs, how often it evaluates. The names stay the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from wattune.core.workload import Phase, Pipe, Workload
from wattune.workloads.family_tasks import GENERATION, TASKS, Task, graph_tasks
from wattune.workloads.merge import merged
from wattune.workloads.operation import gradient_phases, inference_phases, update_phase
from wattune.workloads.schedule import Schedule, scheduled
from wattune.workloads.suite_networks import wgan_critic, wgan_generator
from wattune.workloads.training_run import Loop, Wait, one_pass, run_workload

SIZE = 71
_STRETCHES = 2
# Updates of the critic for one of the generator (Arjovsky et al. 2017, algorithm 1).
_CRITIC_STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyMember:
    """One training job."""

    name: str
    suite: str
    """"aibench" or "gnn"."""
    batch_size: int
    pipe: Pipe
    loop: Loop
    seed: int

    @property
    def step(self) -> Workload:
        """One step: what a program would call an iteration, waits at their mean."""
        return one_pass(self.loop, "step")

    @property
    def run(self) -> Workload:
        """From one checkpoint to the next, with evaluation, as one long iteration; waits are drawn."""
        return run_workload(self.loop, seed=self.seed)


def family(*, seed: int = 0) -> tuple[FamilyMember, ...]:
    """The seventy-one jobs, in a fixed order."""
    return tuple(_members(seed))


def _members(seed: int) -> Iterator[FamilyMember]:
    for task in (*TASKS, *graph_tasks()):
        random = Random(f"{seed}/{task.name}")
        drawn = _drawn(task, random)
        yield FamilyMember(
            name=task.name,
            suite=task.name.partition("/")[0],
            batch_size=drawn.batch_size,
            pipe=task.pipe,
            loop=_loop(drawn, _schedule(drawn, random)),
            seed=random.randrange(2**32),
        )


def _drawn(task: Task, random: Random) -> Task:
    """The task as one program has it: half to twice the usual batch, host times within a factor of about two."""
    factor = random.choice((0.5, 1.0, 1.0, 2.0))
    # A batch of one is one large graph or image, and there is no half of it.
    batch_size = round(task.batch_size * factor) if task.batch_size > 1 else 1
    scale = batch_size / task.batch_size
    return replace(
        task,
        batch_size=batch_size,
        loading_s=task.loading_s * scale * random.lognormvariate(0.0, 0.35),
        dispatch_s=task.dispatch_s * random.lognormvariate(0.0, 0.25),
    )


def _schedule(task: Task, random: Random) -> Schedule:
    """How the program evaluates and saves."""
    return Schedule(
        micro_steps=random.choice(task.micro_steps),
        steps=random.randint(*task.steps),
        loading=Wait("loading", task.loading_s, random.uniform(0.05, 0.5)) if task.loading_s else None,
        evaluation_batches=random.choice((0, 5, 10, 15)),
        evaluations=random.choice((1, 1, 2)),
        checkpoint=Wait("checkpoint", random.uniform(0.05, 1.0), 0.2) if random.random() < 0.5 else None,
    )


def _loop(task: Task, schedule: Schedule) -> Loop:
    if task.name == GENERATION:
        return _adversarial(task, schedule)
    return scheduled(
        task.name,
        schedule,
        gradients=_gradients(task),
        update=_dispatched(update_phase(task.operations(), task.optimizer), task),
        evaluating=_phases(inference_phases(task.operations(), batch_size=task.batch_size, pipe=task.pipe), task),
    )


def _adversarial(task: Task, schedule: Schedule) -> Loop:
    """Several steps of the critic, then one of the generator through the critic."""
    critic, generator = wgan_critic(), wgan_generator()
    against = replace(task, operations=wgan_critic)
    making = replace(task, operations=lambda: (*generator, *critic))
    loading = (schedule.loading,) if schedule.loading else ()
    update = _dispatched(update_phase(critic, task.optimizer), task)
    critic_steps = Loop("critic step", (*loading, *_gradients(against), update), _CRITIC_STEPS)
    generating = (*_gradients(making), _dispatched(update_phase(generator, task.optimizer), task))
    return Loop(task.name, (Loop("step", (critic_steps, *generating), schedule.steps),))


def _gradients(task: Task) -> tuple[Phase, ...]:
    return _phases(gradient_phases(task.operations(), batch_size=task.batch_size, pipe=task.pipe), task)


def _phases(phases: tuple[Phase, ...], task: Task) -> tuple[Phase, ...]:
    return tuple(_dispatched(phase, task) for phase in merged(phases, _STRETCHES))


def _dispatched(phase: Phase, task: Task) -> Phase:
    """The phase with the host time of its kernels that the GPU waits for."""
    return replace(phase, host_stall_s=phase.launches * task.dispatch_s)
