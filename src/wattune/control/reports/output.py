"""Steps in the output of a program, recognised by the well-known forms of progress that training programs print.

The output is read beside the program where it goes to a file, as under nohup or a batch system: nothing is put between
the program and its file, so the program behaves as it would alone. Output to a terminal or a pipe is not read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field

from wattune.control.reports.file import LineBuffer
from wattune.control.reports.report import StepCount, StepReport
from wattune.control.step_file import NewSteps

ENOUGH = 5
"""Matches of one form after which its steps count; of nested bars the innermost gets there first."""
TAKES_OVER = 20
"""Matches of another progress, while the one that counts stands still, after which that counts: a data set was prepared
before the training, or an epoch has another number of steps."""
MOST_BYTES = 1 << 20
"""Bytes that are read at once; of more the latest."""


@dataclass(frozen=True, slots=True)
class OutputForm:
    """A form of progress: its name, and a pattern with the number of the step and of all, where it has them."""

    name: str
    regex: re.Pattern[str]

    def read(self, line: str) -> tuple[tuple[str, str], StepReport] | None:
        """Return what distinguishes this progress from another of the same form, and the step; None without one."""
        match = self.regex.search(line)
        if match is None:
            return None
        groups = match.groupdict()
        number = groups.get("step")
        return (self.name, groups.get("total") or ""), StepReport(None if number is None else int(number))


FORMS = tuple(
    OutputForm(name, re.compile(text))
    for name, text in (
        # ` 45%|████▌     | 45/100 [00:10<00:12,  4.50it/s]`, also of Lightning, whose bars begin with `Epoch 0:`
        ("tqdm", r"\d%\|[^|]*\|\s*(?P<step>\d+)/(?P<total>\d+) \["),
        ("tqdm", r"(?:^|\s)(?P<step>\d+)it \[\d+:\d\d"),
        # `{'loss': 0.5, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.32}`, once in `logging_steps`
        ("Hugging Face Trainer", r"\{'loss': .*'learning_rate': .*'epoch': "),
        # ` iteration       10/  500000 | consumed samples: …`
        ("Megatron-LM", r"\biteration\s+(?P<step>\d+)/\s*(?P<total>\d+) \|"),
        # `[Rank 0] step=10, skipped=0, lr=[…]` and `steps: 10 loss: 3.1 iter time (s): 0.5 samples/sec: 64`
        ("DeepSpeed", r"\[Rank \d+\] step=(?P<step>\d+), skipped="),
        ("DeepSpeed", r"\bsteps: (?P<step>\d+) loss: \S+ iter time \(s\): "),
        # ` 45/100 ━━━━━━━━━━━━ 12s 34ms/step - loss: 0.5`, and `45/100 [====>.....] - ETA: 5s` of older versions
        ("Keras", r"^\s*(?P<step>\d+)/(?P<total>\d+) (?:\S*━|\[=*>?\.*\] - )"),
    )
)


@dataclass(slots=True)
class OutputSteps:
    """The steps in the lines of a program: of the progress that was matched often enough since the chosen one moved."""

    chosen: tuple[str, str] | None = None
    """The progress that counts: its form, and the number of its steps."""
    _seen: dict[tuple[str, str], int] = field(default_factory=dict)
    _count: StepCount = field(default_factory=StepCount)

    def read(self, line: str) -> int:
        """Return how many new steps a line shows."""
        found = next((one for form in FORMS if (one := form.read(line)) is not None), None)
        if found is None:
            return 0
        key, report = found
        if key == self.chosen:
            self._seen.clear()
            self._count, more = self._count.stepped(report)
            return more
        self._seen[key] = self._seen.get(key, 0) + 1
        if self._seen[key] >= (ENOUGH if self.chosen is None else TAKES_OVER):
            self.chosen, self._seen = key, {}
            self._count, _ = StepCount().stepped(report)
        return 0


class OutputFollower:
    """Reads the files that the output of a program goes to."""

    def __init__(self, descriptors: Sequence[int]) -> None:
        """The descriptors are open for reading; what the files contain by now is not of the program."""
        self._files = [(one, LineBuffer(), OutputSteps()) for one in descriptors]
        self._positions = {one: os.fstat(one).st_size for one in descriptors}
        self._chosen: tuple[str, str] | None = None
        self.unit_changed = False
        """True where another progress has counted since this was last set to False."""

    @classmethod
    def beside(cls, descriptors: Sequence[int]) -> OutputFollower | None:
        """Open the regular files among these descriptors a second time; None where there are none."""
        found: dict[tuple[int, int], int] = {}
        for descriptor in descriptors:
            try:
                about = os.fstat(descriptor)
                if stat.S_ISREG(about.st_mode) and (about.st_dev, about.st_ino) not in found:
                    again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
                    found[about.st_dev, about.st_ino] = again
            except OSError:
                continue  # a closed descriptor, or a file that may only be written
        return cls(tuple(found.values())) if found else None

    def take(self) -> NewSteps | None:
        """Return the steps since the last call; None where there were none."""
        for descriptor, lines, steps in self._files:
            more = sum(steps.read(line) for line in lines.feed(self._new_bytes(descriptor)))
            if more and steps.chosen != self._chosen:
                self.unit_changed, self._chosen = self._chosen is not None, steps.chosen
                return NewSteps(1, 0.0)
            if more:
                return NewSteps(more, 0.0)
        return None

    @property
    def source(self) -> str:
        """The form that counts; empty before the first step."""
        return "" if self._chosen is None else self._chosen[0]

    def close(self) -> None:
        for descriptor, _, _ in self._files:
            os.close(descriptor)
        self._files = []

    def _new_bytes(self, descriptor: int) -> bytes:
        try:
            size = os.fstat(descriptor).st_size
            start = self._positions[descriptor] if size >= self._positions[descriptor] else 0
            start = max(start, size - MOST_BYTES)
            self._positions[descriptor] = size
            return os.pread(descriptor, size - start, start) if size > start else b""
        except OSError:
            return b""
