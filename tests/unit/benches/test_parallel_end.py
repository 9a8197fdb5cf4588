"""A bench that is killed leaves no worker behind."""

import subprocess
import sys

import psutil

from processes import wait_until

BENCH = """
import os, signal
from wattune_bench.parallel import in_processes

def case(number):
    os.write(1, b"%d\\n" % number)  # in one piece, beside the other worker's
    signal.pause()

if __name__ == "__main__":
    in_processes(case, [1, 2], processes=2, on_case=print)
"""


def test_workers_end_with_a_bench_that_is_terminated(tmp_path):
    script = tmp_path / "bench.py"
    script.write_text(BENCH)
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert sorted((process.stdout.readline(), process.stdout.readline())) == ["1\n", "2\n"]
            workers = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            wait_until(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in workers))
        finally:
            process.kill()  # else leaving the block would wait for it after a failure
