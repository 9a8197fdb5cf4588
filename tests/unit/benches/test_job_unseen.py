"""Made-up tables: changed public ones, the same every time, on which a default run makes sense."""

from job_tables import write_tables
from wattune_bench.job.trace import read_workloads
from wattune_bench.job.unseen import is_held_out, made_up


def test_made_up_tables_are_labelled_repeatable_and_fair(tmp_path):
    write_tables(tmp_path)
    public = read_workloads(tmp_path)
    made = made_up(public, (1, 2))
    assert len(made) == 2 * len(public)
    assert made == made_up(public, (1, 2))
    for workload in made:
        assert "~" in workload.gpu.name
        assert "made up" in workload.notes[0]
        assert is_held_out(workload) is workload.gpu.name.endswith("2")
        assert workload.expected(workload.default) is not None
        for cells in workload.epochs.values():
            assert list(cells) == sorted(cells)
            assert all(cost.time_s > 0 and cost.energy_j > 0 for cost in cells.values())
