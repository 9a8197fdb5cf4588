"""Steps in the output of a program, recognised by the well-known forms of progress that training programs print.

The hook in the program's Python copies what it prints, wherever that goes; of other programs the output is read where
it goes to a file, as under nohup or a batch system. Nothing is put between the program and its terminal, pipe or file,
so the program behaves as it would alone, whatever happens to wattune.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from wattune.control.reports.file import LineBuffer
from wattune.control.reports.report import StepCount, StepReport
from wattune.control.step_file import SILENT_S, NewSteps, PrintedText, StepFile

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


class _FileText:
    """The text of a file that the output of a program goes to."""

    def __init__(self, descriptor: int) -> None:
        """What the file contains by now is not of the program."""
        self.descriptor = descriptor
        self.lines, self.steps = LineBuffer(), OutputSteps()
        self._position = os.fstat(descriptor).st_size

    def new(self) -> tuple[bytes, float]:
        """Return the bytes since the last call, and their age, which is unknown here."""
        try:
            size = os.fstat(self.descriptor).st_size
            start = self._position if size >= self._position else 0
            start = max(start, size - MOST_BYTES)
            self._position = size
            return (os.pread(self.descriptor, size - start, start) if size > start else b""), 0.0
        except OSError:
            return b"", 0.0


class _TappedText:
    """The text that one process prints to one stream, copied by the hook."""

    def __init__(self, file: StepFile, text: PrintedText) -> None:
        self.lines, self.steps = LineBuffer(), OutputSteps()
        self._file, self.text, self._read = file, text, 0

    def new(self) -> tuple[bytes, float]:
        data = self._file.text_since(self._read, self.text)
        self._read = self.text.written
        return data, max(time.monotonic() - self.text.time_s, 0.0)


class OutputFollower:
    """Reads what a program prints: as its own Python copies it, or else in the files that its output goes to.

    One stream of one process stands for all, since ranks step together. Another is followed once it has stood still.
    """

    def __init__(self, descriptors: Sequence[int] = (), copied: StepFile | None = None) -> None:
        """The descriptors are open for reading."""
        self._files = [_FileText(one) for one in descriptors]
        self._copied = copied
        self._tapped: dict[tuple[int, int], _TappedText] = {}
        self._followed: _FileText | _TappedText | None = None
        self._moved_s = float("-inf")
        self._chosen: tuple[str, str] | None = None
        self.unit_changed = False
        """True where another progress has counted since this was last set to False."""

    @classmethod
    def beside(cls, descriptors: Sequence[int], copied: StepFile | None = None) -> OutputFollower:
        """Open the regular files among these descriptors a second time."""
        found: dict[tuple[int, int], int] = {}
        for descriptor in descriptors:
            try:
                about = os.fstat(descriptor)
                if stat.S_ISREG(about.st_mode) and (about.st_dev, about.st_ino) not in found:
                    again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
                    found[about.st_dev, about.st_ino] = again
            except OSError:
                continue  # a closed descriptor, or a file that may only be written
        return cls(tuple(found.values()), copied)

    def take(self) -> NewSteps | None:
        """Return the steps since the last call; None where there were none."""
        moved = {}
        for text in self._texts():
            data, age_s = text.new()
            more = sum(text.steps.read(line) for line in text.lines.feed(data))
            if more:
                moved[text] = NewSteps(more, age_s)
        if self._followed not in moved:
            if not moved or time.monotonic() - self._moved_s < SILENT_S:
                return None
            self._followed = next(iter(moved))
            self._chosen = self._chosen and ("", "")
        assert self._followed is not None
        self._moved_s = time.monotonic()
        steps, chosen = moved[self._followed], self._followed.steps.chosen
        if chosen == self._chosen:
            return steps
        self.unit_changed, self._chosen = self._chosen is not None, chosen
        return NewSteps(1, steps.age_s)

    @property
    def source(self) -> str:
        """The form that counts; empty before the first step."""
        return "" if self._chosen is None else self._chosen[0]

    def close(self) -> None:
        for text in self._files:
            os.close(text.descriptor)
        self._files = []

    def _texts(self) -> Sequence[_FileText | _TappedText]:
        """Return the copies where there are any: files have the same text, and later."""
        for text in () if self._copied is None else self._copied.texts():
            key = text.start, text.pid
            if key not in self._tapped and self._copied is not None:
                self._tapped[key] = _TappedText(self._copied, text)
            self._tapped[key].text = text
        return tuple(self._tapped.values()) or self._files
