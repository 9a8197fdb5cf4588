"""The network that `wattune layers` works on: options, and layers by name or from PyTorch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wattune.core.errors import InputError, WattuneError

if TYPE_CHECKING:
    from wattune.core.workload import Pipe, Workload

F = TypeVar("F", bound=Callable[..., Any])

PRECISIONS = ("fp32", "tf32", "fp16")
_EXAMPLE = "write --model train.py:make with a function that returns (model, inputs)"


def network_options(function: F) -> F:
    """Add the options that name a network."""
    options = (
        click.option("--model", "name", required=True, help="A network (resnet50), or FILE.py:FUNCTION for PyTorch."),
        click.option("--batch", type=click.IntRange(min=1), help="Batch size.  [default: the network's usual one]"),
        click.option("--precision", type=click.Choice(PRECISIONS), help="Arithmetic.  [default: the network's]"),
    )
    for option in reversed(options):
        function = option(function)
    return function


gpu_option = click.option("--gpu", required=True, help="A GPU of the catalogue: rtx-a4000, a100 …")
"""The option that names a simulated GPU to plan for."""


def layers_of(name: str, *, batch_size: int | None, precision: str | None) -> Workload:
    """Return a training step of a network, a phase per layer and pass."""
    from wattune.core.workload import Pipe
    from wattune.workloads.catalog import make_layers

    pipe = None if precision is None else Pipe(precision)
    if not is_file_model(name):
        try:
            return make_layers(name, batch_size=batch_size, pipe=pipe)
        except InputError as error:
            raise InputError(error.message, hint=f"{error.hint}; for your own model, {_EXAMPLE}") from None
    traced = _traced(name, pipe)
    if batch_size not in (None, traced.batch_size):
        raise InputError(
            f"{name} makes inputs for a batch size of {traced.batch_size}, not {batch_size}",
            hint="leave out --batch, or change the inputs",
        )
    return traced


def check_model(name: str, *, batch_size: int | None, precision: str | None) -> None:
    """Raise where there is no such network or file; a file is not run."""
    if is_file_model(name):
        _check_exists(Path(name.rpartition(":")[0]))
    else:
        layers_of(name, batch_size=batch_size, precision=precision)


def is_file_model(name: str) -> bool:
    """Return whether a model is named as FILE.py:FUNCTION."""
    return name.rpartition(":")[0].endswith(".py")


def called_model(name: str) -> tuple[Any, Any]:
    """Return the PyTorch model and the inputs that a function of a file makes."""
    file, _, function = name.rpartition(":")
    found = _called(Path(file), function)
    if not (isinstance(found, tuple) and len(found) == 2):
        raise InputError(f"{function} of {file} does not return (model, inputs)", hint=_EXAMPLE)
    return found


def _traced(name: str, pipe: Pipe | None) -> Workload:
    """Trace the layers of the PyTorch model that a function of a file returns with its inputs."""
    _check_exists(Path(name.rpartition(":")[0]))
    try:
        from wattune.integrations.torch.layers import trace_layers
    except ImportError as error:
        raise InputError(
            "a model of your own is traced with PyTorch, which is not installed", hint="pip install 'wattune[torch]'"
        ) from error
    return trace_layers(*called_model(name), pipe=pipe)


def _check_exists(file: Path) -> None:
    if not file.is_file():
        raise InputError(f"there is no file {file}", hint=_EXAMPLE)


def _called(file: Path, function: str) -> Any:
    """Run a file of the user and call one of its functions, with the folder of the file to import from."""
    _check_exists(file)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file} cannot be imported", hint=_EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        spec.loader.exec_module(module)
        if not callable(getattr(module, function, None)):
            raise InputError(f"{file} has no function {function!r}", hint=_EXAMPLE)
        return getattr(module, function)()
    except WattuneError:
        raise
    except Exception as error:
        words = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(f"{function} of {file} failed: {words}", hint="run it with python first") from error
    finally:
        sys.path.remove(str(file.parent.resolve()))
