"""Fixtures that tests of several folders share."""

import os

# Each test process computes on one thread: pytest-xdist runs one process per core, and threads of BLAS and OpenMP that
# wait for a core keep other processes from it. Set before NumPy is imported; programs that tests start inherit it.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

pytest_plugins = ["processes", "emulated", "postgres_server", "torch_processes"]
