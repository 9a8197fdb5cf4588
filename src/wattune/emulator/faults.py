"""What can be made to go wrong with a simulated GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass

from wattune.core.errors import InputError
from wattune.emulator.node import Node

CODES = {"timeout": 10, "lost": 15, "reset-required": 16, "in-use": 19, "not-ready": 27, "unknown": 999}
"""The NVML errors that have a name here."""

_FORM = re.compile(r"(?P<index>\d+):(?P<kind>[a-z-]+)(?:@(?P<at>\d+(?:\.\d+)?)s?)?")


@dataclass(frozen=True, slots=True)
class Fault:
    """A GPU that is lost from some time on, or that answers every call with one error."""

    index: int
    code: int
    at_s: float | None = None

    @classmethod
    def parse(cls, text: str) -> Fault:
        """The fault that "0:lost@30s", "1:lost" or "0:timeout" means."""
        match = _FORM.fullmatch(text.strip().lower())
        if not match or match["kind"] not in CODES:
            raise InputError(
                f"{text!r} is not a fault", hint=f'write "0:lost@30s" or INDEX:KIND with one of {", ".join(CODES)}'
            )
        if match["at"] and match["kind"] != "lost":
            raise InputError(f"{text!r}: only a loss can come later", hint=f'write "{match["index"]}:{match["kind"]}"')
        return cls(int(match["index"]), CODES[match["kind"]], float(match["at"]) if match["at"] else None)

    def befall(self, node: Node) -> None:
        """Nothing; the GPU has the fault."""
        if self.code == CODES["lost"]:
            node.lose(self.index, at_s=self.at_s)
        else:
            node.fail(self.index, self.code)
