"""Our Zeus beside that of its authors, in their own simulator."""

import numpy as np
import pytest

from job_tables import write_tables
from wattune_bench.job import zeus_package as job_zeus_package
from wattune_bench.job.cases import PACKAGE, JobCase, make_policy, run_case
from wattune_bench.job.environment import play
from wattune_bench.job.figures import apart
from wattune_bench.job.trace import read_workloads

pytestmark = pytest.mark.skipif(not job_zeus_package.installed(), reason="the zeus package is not installed")


@pytest.mark.parametrize("never", [(), (16, 256)])
@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
def test_the_pruning_costs_the_same_to_the_last_joule(tmp_path, never, eta):
    """With one training per batch size nothing is left to luck before the sampling begins."""
    (workload,) = read_workloads(write_tables(tmp_path, runs=1, never=never))
    workload = workload.wanting(f"cost:{eta:g}")
    pruning = 6 if never else 8
    times_s, energies_j = job_zeus_package.simulate(workload, eta=eta, recurrences=pruning, seed=1)
    searcher, limits = make_policy("zeus", workload, 1)
    played = play(workload, searcher, limits, recurrences=pruning, seed=1)
    np.testing.assert_allclose([bill.time_s for bill in played.recurrences], times_s)
    np.testing.assert_allclose([bill.energy_j for bill in played.recurrences], energies_j)


def test_over_many_seeds_they_agree(tmp_path):
    (workload,) = read_workloads(write_tables(tmp_path, spread=2))
    ours, theirs = (
        run_case(
            JobCase(
                section="horizon",
                workload=workload,
                policy=policy,
                eta=0.5,
                seeds=tuple(range(20)),
                recurrences=workload.horizon,
            )
        )
        for policy in ("zeus", PACKAGE)
    )
    assert apart(ours, theirs) < 4
    first = ours.costs[:, :10].sum(axis=1), theirs.costs[:, :10].sum(axis=1)
    error = np.sqrt(sum(costs.var(ddof=1) / len(costs) for costs in first))
    assert abs(first[0].mean() - first[1].mean()) < 4 * error
