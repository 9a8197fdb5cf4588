"""The tree of errors.

    WattuneError
    ├── DeviceError
    │   ├── DeviceNotFound      no such GPU, or no driver that works
    │   │   └── NoDriver        no NVIDIA driver is installed
    │   ├── DeviceBusy          another process is tuning this GPU
    │   ├── DeviceLost          the GPU fell off the bus
    │   ├── NoPermission        the driver requires more privilege
    │   ├── NotSupported        the GPU cannot do it
    │   └── SettingRefused      the GPU has no such clock or limit
    ├── InputError              a file or value that cannot be used as given
    ├── Infeasible              no choice meets the objective
    ├── PlanError               a plan that cannot be carried out
    ├── StoreError              the history cannot be read or written
    └── ConfigError             an option of wattune that is invalid

The message of an error is one line about what is wrong; its hint is what to do next. Both repeat at most 200 characters
of a text from outside.
"""

from functools import partial

_ECHO = 200
"""Characters that a message repeats of a text from outside."""
_HEAD, _TAIL = 130, 60
"""What is kept of a longer one, at its ends."""
_OUTSIDE = r"'(?:[^'\\]|\\.){199,}'|\"(?:[^\"\\]|\\.){199,}\"|\S{201,}"
"""A quoted text or a word that is longer than any of ours."""
_LONGEST = 600
"""No message of ours is longer, with all names that it lists."""


def shortened(text: str) -> str:
    """Return a line of output in which no text from outside is longer than 200 characters."""
    if len(text) <= _ECHO:
        return text
    import re  # the watchdog imports this file, and has to stay small

    text = re.sub(_OUTSIDE, lambda found: _cut(found[0]), text)
    return text if len(text) <= _LONGEST else _cut(text)


def _cut(text: str) -> str:
    return f"{text[:_HEAD]} … {text[-_TAIL:]}"


class WattuneError(Exception):
    """An error with a message of one line and a hint about what to do next."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        message = shortened(" ".join(message.splitlines()) or message)  # names from outside may hold line ends
        super().__init__(message)
        self.message = message
        self.hint = hint and shortened(hint)

    def __reduce__(self) -> tuple[object, ...]:
        return (partial(type(self), hint=self.hint), (self.message,))


class DeviceError(WattuneError):
    """A GPU cannot be used as asked."""


class DeviceNotFound(DeviceError):
    """There is no such GPU, or no driver."""


class NoDriver(DeviceNotFound):
    """No NVIDIA driver is installed: the only reason for which `auto` means a simulated GPU."""


class DeviceBusy(DeviceError):
    """Another process is tuning this GPU."""


class DeviceLost(DeviceError):
    """The GPU no longer answers."""


class NoPermission(DeviceError):
    """The driver requires more privilege for this."""


class NotSupported(DeviceError):
    """This GPU, or its driver, cannot do this."""


class SettingRefused(DeviceError):
    """The GPU has no such clock or power limit."""


class InputError(WattuneError):
    """A file or a value cannot be used as given."""


class Infeasible(WattuneError):
    """No choice that was tried meets the objective."""


class PlanError(WattuneError):
    """A plan cannot be carried out."""


class StoreError(WattuneError):
    """The history cannot be read or written."""


class ConfigError(WattuneError):
    """An option of wattune is invalid."""
