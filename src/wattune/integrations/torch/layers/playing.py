"""Plays a plan of layers on a PyTorch model while it trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from wattune.control.actuator import MAX_PENDING, Actuator, ActuatorThread, passes_by_itself
from wattune.core.errors import PlanError
from wattune.core.frontier import Trial
from wattune.devices.gpu import Gpu
from wattune.integrations.cuda_stamp import stamps_on
from wattune.integrations.torch.layers.calls import OPTIMIZER, WHOLE, heard, plain_model
from wattune.integrations.torch.layers.tracing import trace_layers
from wattune.levels.layer.costs import ALL_REDUCE
from wattune.levels.layer.listener import LayerPlanListener
from wattune.levels.layer.plan_file import LayerPlans, read_layer_plans
from wattune.levels.layer.player import LayerProgram, MadeFor
from wattune.levels.layer.switching import SwitchCost
from wattune.plans.plan import Plan

_STEPS_AHEAD = 4
"""Steps by which a program is at most ahead of its GPU; more would fill its memory."""

_playing: set[object] = set()
"""Models, by identity, and GPUs, by UUID, on which a plan is played."""


@contextmanager
def played_layers(
    model: torch.nn.Module,
    plan: Plan | Trial[Plan] | LayerPlans | Path | str,
    gpu: Gpu,
    *,
    switching: SwitchCost | None = None,
    optimizer: Any = None,
    made_for: MadeFor | None = None,
    inputs: Any = None,
) -> Iterator[Actuator]:
    """Set the clocks of each segment of layers while the model trains; yield the actuator that sets them.

    `plan` is the path of a plan file, of which the chosen plan is played, or what was read from it, or a plan. A plan
    by itself needs `switching`, the cost of a change that it was made with, and `made_for`. A plan that does not fit
    the model, the GPU or the batch size is refused. With `inputs`, the model is traced first and compared with the
    plan layer by layer; without, its modules are, and the order is checked while it runs. Without `optimizer`, its step
    keeps the setting of the last layer. When anything fails later, the GPU is restored, `disabled` of the actuator
    gives the reason, and training goes on.
    """
    chosen, switching, made = _opened(plan, switching, made_for)
    plain = plain_model(model)
    made.check(gpu=gpu.spec.name)
    names = tuple(operation.name for operation in chosen.graph.operations)
    paths = _paths(plain, names)
    if inputs is not None:
        _check_traced(plain, inputs, chosen, gpu, switching=switching, made_for=made)
    unheard = {ALL_REDUCE} if optimizer is not None else {ALL_REDUCE, OPTIMIZER}
    program = LayerProgram.of(chosen, switching=switching, spec=gpu.spec, heard=set(names) - unheard)
    stamps = stamps_on(_device(plain))
    with _alone(plain, gpu), _clocks(gpu, program) as clocks:
        listener = LayerPlanListener(program, clocks, stamps, made_for=made)
        with heard(plain, listener, paths=paths, optimizer=optimizer):
            yield clocks


def _opened(
    plan: Plan | Trial[Plan] | LayerPlans | Path | str, switching: SwitchCost | None, made_for: MadeFor | None
) -> tuple[Plan, SwitchCost, MadeFor]:
    """Return the plan to play, the cost of switching it was made with, and what it was made for."""
    if isinstance(plan, Path | str):
        plan = read_layer_plans(Path(plan))
    if isinstance(plan, LayerPlans):
        made = made_for or MadeFor(gpu=plan.gpu, batch_size=plan.batch_size)
        return plan.plan.choice, switching or plan.switching, made
    if switching is None:
        raise PlanError(
            "how far ahead of time clocks must be requested is not known",
            hint="give switching=, the cost of a change that the plan was made with",
        )
    return plan.choice if isinstance(plan, Trial) else plan, switching, made_for or MadeFor()


def _clocks(gpu: Gpu, program: LayerProgram) -> Actuator:
    """Return an actuator that keeps all requests of some steps, since the program may be ahead of the GPU."""
    if not passes_by_itself(gpu):
        return Actuator([gpu])
    return ActuatorThread([gpu], max_pending=max(MAX_PENDING, _STEPS_AHEAD * sum(map(len, program.requests))))


def _paths(model: torch.nn.Module, names: tuple[str, ...]) -> set[str]:
    """Return the paths of the modules that a plan has; raise with the first that the model lacks."""
    known = {path or WHOLE for path, _ in model.named_modules()}
    paths = set()
    for name in names:
        _, slash, layer = name.partition("/")
        path = layer.partition("#")[0]
        if slash and path not in known:
            raise PlanError(
                f"the plan has {name!r}, and {type(model).__name__} has no module {path!r}",
                hint="plan for the model that is trained: trace_layers lists its layers",
            )
        paths |= {path} if slash else set()
    return paths


def _check_traced(
    model: torch.nn.Module, inputs: Any, plan: Plan, gpu: Gpu, *, switching: SwitchCost, made_for: MadeFor
) -> None:
    """Raise an error unless the model runs the layers of the plan with these inputs."""
    traced = trace_layers(model, inputs)
    made_for.check(batch_size=traced.batch_size)
    whole = LayerProgram.of(plan, switching=switching, spec=gpu.spec)
    planned = {name.partition("/")[0] for name in whole.names}
    runs = [phase.name for phase in traced.phases if phase.name.partition("/")[0] in planned]
    if ALL_REDUCE in whole.names:
        runs.insert(whole.names.index(ALL_REDUCE), ALL_REDUCE)
    whole.check(runs)


def _device(model: torch.nn.Module) -> torch.device:
    """Return where the model is; a model without parameters is on the CPU."""
    weight = next(iter(model.parameters()), None)
    return torch.device("cpu") if weight is None else weight.device


@contextmanager
def _alone(model: torch.nn.Module, gpu: Gpu) -> Iterator[None]:
    """Refuse a second plan on the same model or GPU within the block."""
    own = {id(model), gpu.spec.uuid}
    if own & _playing:
        raise PlanError(
            "a plan is played on this model or this GPU already", hint="end that block before another one begins"
        )
    _playing.update(own)
    try:
        yield
    finally:
        _playing.difference_update(own)
