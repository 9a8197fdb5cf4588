"""What a GPU really spent while somebody else's meter ran: at least and at most, since starting it takes time too."""

import os
import time
from pathlib import Path

from wattune.emulator.node import Node


def pass_time(node, seconds):
    """Let seconds of the node pass; virtual ones pass at once."""
    if node.is_virtual:
        node.advance(seconds)
    else:
        time.sleep(seconds)


class Bracket:
    """Marks around the start and the end of a meter; `least_j` lies inside both, `most_j` outside of both."""

    def __init__(self, index=0):
        self.node = Node.attach(Path(os.environ["WATTUNE_NODE"]))
        self.index = index
        self.marks = []

    def around(self, step):
        """What a step gave back, the truth marked before and after it."""
        before_j, before_s = self.node.truth_j(self.index), self.node.now_s()
        result = step()
        self.marks.append((before_j, self.node.truth_j(self.index), before_s, self.node.now_s()))
        return result

    def document(self):
        """The brackets of energy and time between the first step and the last."""
        first, last = self.marks[0], self.marks[-1]
        return {
            "least_j": last[0] - first[1],
            "most_j": last[1] - first[0],
            "least_s": last[2] - first[3],
            "most_s": last[3] - first[2],
        }
