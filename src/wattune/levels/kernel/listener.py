"""What hears of the instructions of a rank while it trains, and the listener that plays a fixed plan."""

from __future__ import annotations

from typing import Protocol

from wattune.control.actuator import ClockQueue
from wattune.levels.kernel.player import Player
from wattune.levels.kernel.schedules import Piece
from wattune.levels.kernel.stamps import Stamps


class Listener(Protocol):
    """Told of every iteration and every instruction of one rank, in the thread that trains: it must be quick."""

    def start(self) -> None:
        """An iteration begins."""
        ...

    def begin(self, piece: Piece) -> None:
        """An instruction is about to be given to the GPU."""
        ...

    def end(self, piece: Piece) -> None:
        """An instruction has been given to the GPU."""
        ...

    def finish(self) -> None:
        """The iteration has been given to the GPU."""
        ...


class PlanListener:
    """Plays one plan for ever."""

    def __init__(self, player: Player, clocks: ClockQueue, stamps: Stamps) -> None:
        self._player = player
        self._clocks = clocks
        self._stamps = stamps

    def start(self) -> None:
        """Nothing; the next instruction is the plan's first, even where an iteration broke off."""
        self._player = self._player.from_start()

    def begin(self, piece: Piece) -> None:
        """Nothing; a setting that changes here is on its way, to be applied when the GPU gets here."""
        self._player, wanted = self._player.begin(piece.name)
        if wanted is not None:
            self._clocks.put(wanted, reached=self._stamps.stamp().passed)

    def end(self, piece: Piece) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""
