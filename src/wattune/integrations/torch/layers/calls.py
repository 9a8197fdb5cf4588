"""Hooks that report each call of a layer: forward when it is called, backward when autograd gets to it.

Names are PASS/PATH: `forward/PATH`, `backward/PATH`, and `optimizer`. Later calls of one module in a forward pass are
`PATH#2`, `PATH#3`; the backward pass of a call has the number of the call. A module that is used in several places has
the first of its paths, and a model without submodules is `model`.

The backward pass is heard by hooks on the node of autograd that made the output of the call. Backward hooks of modules
would put nodes of their own into the graph, which breaks operations in place. What a recomputed layer (activation
checkpointing) does in the backward pass is not reported: it belongs to the layer whose backward pass needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel

from wattune.core.errors import InputError
from wattune.integrations.torch.iteration import batch_size_of
from wattune.integrations.torch.rules import tensors
from wattune.levels.layer.costs import BACKWARD, FORWARD

OPTIMIZER = "optimizer"
WHOLE = "model"
"""In place of the path of the model itself."""


class CallListener(Protocol):
    """Called at every layer of a model that trains, in the thread that trains: it must be quick."""

    def start(self, batch_size: int | None) -> Collection[str] | None:
        """A forward pass of the model begins; return the only layers to report from now on, or None for no change."""
        ...

    def begin(self, name: str) -> None:
        """A layer is about to be given to the GPU."""
        ...

    def end(self, name: str) -> bool:
        """A layer of the forward pass has been given to the GPU; return whether to report its backward pass."""
        ...

    def fail(self, error: Exception) -> None:
        """One of the other calls raised; training does not see it unless this raises too."""
        ...


def plain_model(model: Any) -> torch.nn.Module:
    """Return the model inside of DistributedDataParallel; raise with its name where its layers cannot be heard."""
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"a {type(model).__name__} is no torch.nn.Module", hint="give the model itself")
    if isinstance(model, DataParallel) and len(model.device_ids) > 1:
        raise InputError(
            f"DataParallel runs the model on {len(model.device_ids)} GPUs from one process",
            hint="use DistributedDataParallel, a process per GPU, with a plan in each",
        )
    if isinstance(model, DataParallel | DistributedDataParallel):
        return plain_model(model.module)
    for path, module in model.named_modules():
        _check(path or WHOLE, module)
    return model


def _check(path: str, module: torch.nn.Module) -> None:
    kind = type(module).__name__
    if kind == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None:
        raise InputError(
            f"{path} is compiled by torch.compile, which runs its layers without calling them",
            hint="give the original module, and train that one without torch.compile",
        )
    if isinstance(module, torch.jit.ScriptModule):
        raise InputError(
            f"{path} is a TorchScript module ({kind}), whose layers are not called from Python",
            hint="give the original module, and train that one",
        )


@contextmanager
def heard(
    model: torch.nn.Module, listener: CallListener, *, paths: Collection[str] | None = None, optimizer: Any = None
) -> Iterator[None]:
    """Report the calls of the layers at these paths, or of all modules, while the model trains.

    Nothing is reported in evaluation mode and without gradients.
    """
    calls = _LayerCalls(model, listener)
    with ExitStack() as stack:

        def hook(handle: Any) -> None:
            stack.callback(handle.remove)

        hook(model.register_forward_pre_hook(calls.start, with_kwargs=True))
        for path, module in model.named_modules():
            if paths is None or (path or WHOLE) in paths:
                before, after = calls.hooks(path or WHOLE)
                own = (module.register_forward_pre_hook(before), module.register_forward_hook(after))
                calls.handles[path or WHOLE] = own
                for handle in own:
                    hook(handle)
        hook(model.register_forward_hook(calls.stop, always_call=True))
        if optimizer is not None:
            hook(optimizer.register_step_pre_hook(calls.step))
        stack.callback(calls.close)
        yield


class _LayerCalls:
    """The calls of one forward pass after the other."""

    def __init__(self, model: torch.nn.Module, listener: CallListener) -> None:
        self._model = model
        self._listener = listener
        self._is_open = True
        self._is_training = False
        self._counts: dict[str, int] = {}
        self.handles: dict[str, tuple[Any, ...]] = {}
        """The hooks of each path."""

    def close(self) -> None:
        """Ignore what graphs that are still there report later."""
        self._is_open = False

    def start(self, _module: Any, arguments: Any, options: Any) -> None:
        if _recomputes():
            return
        self._is_training = self._model.training and torch.is_grad_enabled()
        if self._is_training:
            self._counts.clear()
            self._guarded(lambda: self._keep(self._listener.start(batch_size_of((arguments, options)))))

    def _keep(self, names: Collection[str] | None) -> None:
        """Remove the hooks of all modules without one of these layers, except those of the model, which is running."""
        if names is None:
            return
        paths = {WHOLE, *(name.partition("/")[2].partition("#")[0] for name in names)}
        for path in self.handles.keys() - paths:
            for handle in self.handles.pop(path):
                handle.remove()

    def stop(self, *_: Any) -> None:
        if not _recomputes():
            self._is_training = False

    def step(self, *_: Any) -> None:
        self._guarded(lambda: self._listener.begin(OPTIMIZER))

    def hooks(self, path: str) -> tuple[Callable[..., None], Callable[..., None]]:
        """Return what to call before and after the forward pass of a module."""
        names: list[tuple[str, str]] = []

        def name_of(count: int) -> tuple[str, str]:
            while len(names) < count:
                number = len(names) + 1
                names.append((_numbered(f"{FORWARD}/{path}", number), _numbered(f"{BACKWARD}/{path}", number)))
            return names[count - 1]

        def before(*_: Any) -> None:
            try:
                if _recomputes():
                    _check_checkpoint(path)
                elif self._is_training:
                    count = self._counts[path] = self._counts.get(path, 0) + 1
                    self._listener.begin(name_of(count)[0])
            except Exception as error:  # whatever it is, training must not see it
                self._listener.fail(error)

        def after(_module: Any, _inputs: Any, outputs: Any) -> None:
            try:
                if self._is_training and not _recomputes():
                    forward, backward = name_of(self._counts[path])
                    if self._listener.end(forward):
                        self._follow(backward, outputs)
            except Exception as error:
                self._listener.fail(error)

        return before, after

    def _follow(self, name: str, outputs: Any) -> None:
        """Report the backward pass of the call that has just returned these outputs, once."""
        has_begun = False

        def begin(*_: Any) -> None:
            nonlocal has_begun
            if self._is_open and not has_begun:
                has_begun = True
                try:
                    self._listener.begin(name)
                except Exception as error:
                    self._listener.fail(error)

        for tensor in (outputs,) if isinstance(outputs, torch.Tensor) else tensors(outputs):
            node = tensor.grad_fn
            if node is not None:
                node.register_prehook(begin)

    def _guarded(self, call: Callable[[], object]) -> None:
        """Call, and give whatever it raises to the listener instead of the training."""
        try:
            call()
        except Exception as error:
            self._listener.fail(error)


def _numbered(name: str, count: int) -> str:
    return name if count == 1 else f"{name}#{count}"


def _recomputes() -> bool:
    """Return whether this is called in a backward pass, where checkpointed layers run their forward pass again."""
    return torch._C._current_autograd_node() is not None


def _check_checkpoint(path: str) -> None:
    if torch._C._current_autograd_node().name() == "CheckpointFunctionBackward":
        raise InputError(
            f"{path} is recomputed by reentrant activation checkpointing, whose backward pass has no fixed place",
            hint="use checkpoint(..., use_reentrant=False)",
        )
