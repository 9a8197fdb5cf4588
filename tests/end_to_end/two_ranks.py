"""Start a script as two ranks of one job: python two_ranks.py SCRIPT ARGUMENTS…, as `torchrun --nproc-per-node 2` does.

Both ranks are forked after PyTorch was imported once: its import takes seconds of CPU time.
"""

import os
import runpy
import socket
import sys

RANKS = 2


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def environment_of(number, port):
    """The variables by which PyTorch knows a rank."""
    ranks = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": RANKS, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {name: str(value) for name, value in ranks.items()}


def rank_of(number, port, arguments):
    """Fork a process that runs the script; return its id."""
    pid = os.fork()
    if pid:
        return pid
    os.environ.update(environment_of(number, port))
    sys.argv = arguments
    code = 1
    try:
        runpy.run_path(arguments[0], run_name="__main__")
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    import torch.distributed.pipelining  # noqa: F401 - for the ranks

    port = free_port()
    running = [rank_of(number, port, sys.argv[1:]) for number in range(RANKS)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in running]
    sys.exit(max(map(abs, codes)))
