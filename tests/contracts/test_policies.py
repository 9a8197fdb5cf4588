"""Every policy for running programs, ours and those of the benches, passes the contract that is shipped for others."""

import importlib.util
from pathlib import Path

import pytest

from wattune.core.objective import LeastEnergy
from wattune.levels.run.policies import POLICIES, policy_named
from wattune.testing.policy_contract import PolicyContract
from wattune_bench.run.policies import PEERS

OWN = Path(__file__).parents[2] / "examples" / "own_policy.py"


@pytest.mark.parametrize("name", list(POLICIES))
class TestShippedPolicies(PolicyContract):
    @pytest.fixture(autouse=True)
    def chosen(self, name):
        self.name = name

    def make(self):
        return policy_named(self.name, LeastEnergy(0.05))


@pytest.mark.parametrize("name", list(PEERS))
class TestPoliciesOfTheBenches(PolicyContract):
    @pytest.fixture(autouse=True)
    def chosen(self, name):
        self.name = name

    def make(self):
        return PEERS[self.name](LeastEnergy(0.05))


class TestTheExample(PolicyContract):
    def make(self):
        spec = importlib.util.spec_from_file_location("own_policy", OWN)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.StepDown(LeastEnergy(0.05))
