"""Policies that users write: found by `package.module:Name` or by entry point, and checked at every step.

    class MyPolicy:
        def __init__(self, objective): ...
        def step(self, windows, spec): ...   # -> Order

`Name` is anything that takes the objective and returns an object with `step`. The attributes `tunes`, `uses_history`
and `needs_counters` of `RunPolicy` may be left out.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from math import isfinite
from threading import current_thread, main_thread
from typing import Any, Protocol

from wattune.core.errors import InputError, PlanError
from wattune.core.gpu_spec import GpuSpec
from wattune.core.objective import Objective
from wattune.core.window import Order, Window
from wattune.levels.run.policies import POLICIES

GROUP = "wattune.policies"
"""The group of entry points by which a package names its policies."""
MOST_WORDS = 200
GUIDE = "see docs/how-to/write-your-own-policy.md"


class Policy(Protocol):
    """The least that a policy has."""

    def step(self, windows: tuple[Window, ...], spec: GpuSpec) -> Order:
        """Return the order for the next window, given those so far; there are none at first."""


@dataclass(frozen=True, slots=True)
class OwnPolicy:
    """A `RunPolicy` around a user's policy. What the policy raises, or an order that is none, ends the tuning.

    An object that a program made itself runs in that program; a policy that is named, in a process of its own.
    """

    name: str
    policy: Policy
    tunes: bool = True
    uses_history: bool = False
    needs_counters: bool = False

    @classmethod
    def of(cls, policy: Policy, name: str) -> OwnPolicy:
        """Wrap a policy; missing attributes get the usual values."""
        if not callable(getattr(policy, "step", None)):
            raise InputError(f"{name} has no method step(windows, spec)", hint=GUIDE)
        flags = {flag: bool(getattr(policy, flag, default)) for flag, default in FLAGS.items()}
        return cls(name, policy, **flags)

    def step(self, windows: tuple[Window, ...], spec: GpuSpec) -> Order:
        order = self._ordered(windows, spec)
        problem = order_problem(order)
        if problem is not None:
            raise PlanError(f"{self.name} returned {problem}", hint=GUIDE)
        return order

    def _ordered(self, windows: tuple[Window, ...], spec: GpuSpec) -> Order:
        try:
            return self.policy.step(windows, spec)
        except BaseException as error:  # sys.exit too; only Ctrl-C, which comes to the main thread, ends the program
            if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
                raise
            raise PlanError(f"{self.name} raised {error_words(error)}", hint=GUIDE) from None


FLAGS = {"tunes": True, "uses_history": False, "needs_counters": False}


def order_problem(order: object) -> str | None:
    """Return why something is no order that can be carried out, in words; None where it can."""
    if not isinstance(order, Order):
        return f"{order!r:.60}, which is no Order"
    if not (isfinite(order.least_s) and isfinite(order.most_s) and order.most_s > 0 and order.least_s >= 0):
        return f"an order of {order.least_s:g} to {order.most_s:g} s"
    if order.least_s > order.most_s:
        return f"an order whose shortest length, {order.least_s:g} s, is above its longest, {order.most_s:g} s"
    return None


def load_policy(name: str, objective: Objective) -> OwnPolicy:
    """Load the policy of that name and make it for an objective; errors have one line and a hint.

    This runs the user's code: `levels/run/policy_process.py` calls it in a process of its own.
    """
    make = _load_path(name) if ":" in name else _load_entry(name)
    try:
        made = make(objective)
    except InputError:
        raise
    except BaseException as error:  # sys.exit too
        raise InputError(
            f"{name} cannot be made: {error_words(error)}", hint=f"it is called with the objective alone; {GUIDE}"
        ) from None
    return OwnPolicy.of(made, name)


def is_own(name: str) -> bool:
    """Return whether a name is that of a policy written elsewhere."""
    return ":" in name or _entry(name) is not None


def check_name(name: str) -> None:
    """Raise InputError where a name cannot be that of a policy; no code of the user runs."""
    if not is_own(name):
        others = sorted(one.name for one in entry_points(group=GROUP))
        raise InputError(
            f"there is no policy {name!r}",
            hint=f"choose one of {', '.join((*POLICIES, *others))}, or your own: package.module:Name",
        )


def _load_path(name: str) -> Callable[[Objective], Any]:
    module_name, _, attribute = name.partition(":")
    with _folder_on_path():
        try:
            found: Any = importlib.import_module(module_name)
        except BaseException as error:  # whatever a user's module raises, sys.exit too
            raise InputError(
                f"the policy {name} cannot be imported: {error_words(error)}",
                hint="write package.module:Name; the current folder and installed packages are searched",
            ) from None
    for part in attribute.split("."):
        found = getattr(found, part, None)
    return _callable(found, name)


def _load_entry(name: str) -> Callable[[Objective], Any]:
    check_name(name)
    entry = _entry(name)
    assert entry is not None
    try:
        found = entry.load()
    except BaseException as error:
        raise InputError(
            f"the policy {name} ({entry.value}) cannot be imported: {error_words(error)}", hint="reinstall its package"
        ) from None
    return _callable(found, name)


def _entry(name: str) -> EntryPoint | None:
    return next(iter(entry_points(group=GROUP, name=name)), None)


def _callable(found: Any, name: str) -> Callable[[Objective], Any]:
    if not callable(found):
        problem = "is not there" if found is None else "cannot be called"
        raise InputError(f"the policy {name} {problem}", hint=f"name a class or function of its module; {GUIDE}")
    make: Callable[[Objective], Any] = found
    return make


@contextmanager
def _folder_on_path() -> Iterator[None]:
    """Let imports find modules of the current folder, after all others."""
    folder = os.getcwd()
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def error_words(error: BaseException) -> str:
    """Return what a user's code raised as one short line."""
    words = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
    return words if len(words) <= MOST_WORDS else f"{words[:MOST_WORDS]}…"
