"""NVIDIA's own tests of its Python bindings, and Kernel Tuner's control of clocks, against emulated GPUs."""

import re

import peer_environment
import pytest
from played import SPEC

pytestmark = pytest.mark.peers


@pytest.fixture(scope="session")
def suites():
    """The folder with NVIDIA's tests, fetched where it is missing."""
    return peer_environment.ensure_suites()


def test_nvidias_tests_of_its_bindings_pass_as_on_an_a100_node(suites, peers):
    """One fails on every machine: the constant for reading from a peer is a tuple in nvidia-ml-py, by a stray comma."""
    options = ("-q", "-p", "no:cacheprovider", "-c", "/dev/null", "-rfE", f"--rootdir={suites}")
    run = (str(peers.bin / "python"), "-m", "pytest", *options, str(suites / "pynvml_utils" / "tests"))
    done = peers.simulate("--gpu", "a100", "--count", "2", command=("env", f"PYTHONPATH={suites}", *run))
    failed = set(re.findall(r"^(?:FAILED|ERROR) \S*::(\S+)", done.stdout, re.MULTILINE))
    assert failed <= {"test_nvmlDeviceGetP2PStatus[index0]"}, done.stdout
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped|xfailed)", done.stdout)}
    assert counts["passed"] >= 32
    assert (counts["skipped"], counts["xfailed"]) == (1, 11)  # no MIG device; legacy NVLink counters


def test_kernel_tuner_sets_and_reads_clocks(suites, peers):
    found = peers.simulate("--gpu", "a100", "--virtual-time", command=peers.client("kernel_tuner_clocks")).json()
    # Kernel Tuner gives applications clocks back by setting them to their default.
    for kind in ("application", "locked"):
        assert found[kind] == [1005, SPEC.mem_clocks_mhz[0], 250_000, 1005]
        assert found[f"{kind} restored"] == [SPEC.sm_clocks_mhz[-1], 400.0]
