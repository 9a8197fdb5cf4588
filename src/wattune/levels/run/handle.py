"""The tuning of a program as its own code sees it: `with tuned(gpu, slowdown=0.05) as tuning`."""

from __future__ import annotations

from wattune.core.run_window import Purpose, Window
from wattune.core.setting import Setting
from wattune.levels.run.policies import promise_of
from wattune.levels.run.report import figures_of
from wattune.levels.run.session import RunSession
from wattune.levels.run.view.view_model import RunFigures


class Tuning:
    """Where to report steps, and what came of the tuning so far."""

    def __init__(self, session: RunSession) -> None:
        self._session = session

    def step(self, count: int = 1) -> None:
        """Nothing; so many more iterations are over."""
        self._session.step(count)

    @property
    def setting(self) -> Setting:
        """What is set now, or asked for."""
        return self._session.progress.setting

    @property
    def held(self) -> Setting | None:
        """What is held, or was last; None before the search has come to an end."""
        windows, order = self.windows, self._session.progress.order
        if order is not None and order.purpose is Purpose.HOLD:
            return order.setting
        return next((one.setting for one in reversed(windows) if one.purpose is Purpose.HOLD), None)

    @property
    def windows(self) -> tuple[Window, ...]:
        """What was looked at so far, per GPU."""
        return self._session.progress.windows

    @property
    def figures(self) -> RunFigures:
        """Saving and slowdown so far, each with its error."""
        promise = promise_of(self._session.objective)
        return figures_of(self.windows, gpus=len(self._session.gpus), promise=promise)

    @property
    def events(self) -> tuple[str, ...]:
        """What happened, in words."""
        return tuple(event.text for event in self._session.progress.events)
