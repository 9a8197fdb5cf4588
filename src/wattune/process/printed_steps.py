"""Steps in the output of a program, recognised by the well-known forms of progress that training programs print.

Nothing is put between the program and its terminal, pipe or file for it: a program that is not Python and prints to a
terminal is read only by a pattern of the user (`process.watched`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from wattune.process.output import OneProcess, PrintedLines
from wattune.process.patterns import StepCount, StepReport
from wattune.process.step_file import NewSteps

ENOUGH = 5
"""Matches of one form after which its steps count; of nested bars the innermost gets there first."""
TAKES_OVER = 20
"""Matches of another progress, while the one that counts stands still, after which that counts: a data set was prepared
before the training, or an epoch has another number of steps."""


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
    """The steps in what a program prints: one process stands for all."""

    def __init__(self, lines: PrintedLines) -> None:
        self._lines = lines
        self._steps: dict[int, OutputSteps] = {}
        self._process = OneProcess()
        self._chosen: tuple[int, tuple[str, str] | None] | None = None
        self.unit_changed = False
        """True where another progress has counted since this was last set to False."""

    def take(self) -> NewSteps | None:
        """Return the steps since the last call; None where there were none."""
        moved = {}
        for pid, lines in self._lines.new().items():
            steps = self._steps.setdefault(pid, OutputSteps())
            counted = [(more, line.age_s) for line in lines if (more := steps.read(line.text))]
            if counted:
                moved[pid] = NewSteps(sum(more for more, _ in counted), counted[-1][1])
        followed = self._process.among(tuple(moved))
        if followed is None:
            return None
        chosen = followed, self._steps[followed].chosen
        if chosen == self._chosen:
            return moved[followed]
        self.unit_changed, self._chosen = self._chosen is not None, chosen
        return NewSteps(1, moved[followed].age_s)

    @property
    def source(self) -> str:
        """The form that counts; empty before the first step."""
        return "" if self._chosen is None or self._chosen[1] is None else self._chosen[1][0]

    def close(self) -> None:
        self._lines.close()
