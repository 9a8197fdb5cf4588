"""Which setting holds during which span, rank by rank."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from wattune.core.errors import PlanError
from wattune.core.setting import Setting

PLAN_VERSION = 1


@dataclass(frozen=True, slots=True)
class Step:
    """A named span of work and the setting that holds while it runs."""

    span: str
    setting: Setting


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of each rank, in the order in which they run."""

    ranks: tuple[tuple[Step, ...], ...]

    @property
    def switches(self) -> int:
        """How often a rank changes its setting in one pass, the return to its first step not counted."""
        return sum(before.setting != after.setting for steps in self.ranks for before, after in pairwise(steps))

    def to_json(self) -> str:
        """The plan as a versioned JSON document."""
        ranks = [
            [
                {
                    "span": step.span,
                    "sm_mhz": step.setting.sm_mhz,
                    "mem_mhz": step.setting.mem_mhz,
                    "power_limit_w": step.setting.power_limit_w,
                }
                for step in steps
            ]
            for steps in self.ranks
        ]
        return json.dumps({"version": PLAN_VERSION, "ranks": ranks})

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan that a JSON document describes."""
        try:
            document = json.loads(text)
        except json.JSONDecodeError as error:
            raise PlanError(f"a plan is a JSON document: {error}", hint="write it with `Plan.to_json`") from None
        if not isinstance(document, dict) or document.get("version") != PLAN_VERSION:
            raise PlanError(
                f"this plan is not of version {PLAN_VERSION}", hint="make it anew with this version of wattune"
            )
        ranks = document.get("ranks")
        if not isinstance(ranks, list):
            raise PlanError("a plan has a list called 'ranks'")
        return cls(tuple(_steps(number, steps) for number, steps in enumerate(ranks)))


def _steps(rank: int, steps: Any) -> tuple[Step, ...]:
    if not isinstance(steps, list):
        raise PlanError(f"rank {rank} of the plan is not a list of steps")
    return tuple(_step(f"rank {rank}, step {number}", step) for number, step in enumerate(steps))


def _step(where: str, step: Any) -> Step:
    if not isinstance(step, dict) or not isinstance(step.get("span"), str):
        raise PlanError(f"{where} of the plan has no 'span'")
    setting = Setting(
        _number(where, step, "sm_mhz", int),
        _number(where, step, "mem_mhz", int),
        _number(where, step, "power_limit_w", float),
    )
    return Step(step["span"], setting)


def _number(where: str, step: dict[str, Any], key: str, kind: type) -> Any:
    value = step.get(key)
    if value is None:
        return None
    allowed = (int,) if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed) or not value > 0:
        raise PlanError(f"{where} of the plan: {key} is {value!r}, which is not a positive number")
    return kind(value)
