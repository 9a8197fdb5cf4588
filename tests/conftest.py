"""Fixtures that tests of several folders share."""

import os

from hypothesis import HealthCheck, settings

# Each test process computes on one thread: pytest-xdist runs one process per core, and threads of BLAS and OpenMP that
# wait for a core keep other processes from it. Set before NumPy is imported; programs that tests start inherit it.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

# The same examples everywhere, and no time limit for one: a busy machine must not fail a property.
settings.register_profile("wattune", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("wattune")

pytest_plugins = ["processes", "emulated", "postgres_server", "torch_processes"]
