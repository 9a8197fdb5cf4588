"""Run a training of this folder as some ranks: python ranked.py RANKS SCRIPT ARGUMENTS…

The ranks are forked after PyTorch and the framework were imported once: that takes seconds of CPU time.
"""

from __future__ import annotations

import importlib
import os
import runpy
import socket
import sys
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
FRAMEWORKS = {
    "huggingface_run.py": "transformers",
    "lightning_run.py": "lightning.pytorch",
    "plain_run.py": "accelerate",
}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def forked(rank: int, ranks: int, port: int, arguments: list[str]) -> int:
    """Fork a process that runs the script as a rank; return its id."""
    pid = os.fork()
    if pid:
        return pid
    if ranks > 1:
        here = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in here.items()} | {"GLOO_SOCKET_IFNAME": "lo"})
    sys.argv = arguments
    code = 1
    try:
        runpy.run_path(arguments[0], run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    ranks, script = int(sys.argv[1]), HERE / sys.argv[2]
    importlib.import_module(FRAMEWORKS[script.name])
    port = free_port()
    running = [forked(rank, ranks, port, [str(script), *sys.argv[3:]]) for rank in range(ranks)]
    sys.exit(max(abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) for pid in running))
