"""The emulated GPUs inside this very process, for tests of code that speaks NVML."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from wattune.emulator.node import NODE_VARIABLE, Node


@contextmanager
def emulated(node: Node) -> Iterator[Node]:
    """The node, which nvmlInit in this process finds until the block ends.

    The library is already loaded by whoever made the node, so nvidia-ml-py gets it by its bare name as long as no real
    one was loaded before. Only one node serves a process at a time.
    """
    before = os.environ.get(NODE_VARIABLE)
    os.environ[NODE_VARIABLE] = str(node.path)
    try:
        yield node
    finally:
        if before is None:
            del os.environ[NODE_VARIABLE]
        else:
            os.environ[NODE_VARIABLE] = before
