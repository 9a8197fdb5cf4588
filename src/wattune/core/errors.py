"""What can go wrong, as one tree.

    WattuneError
    ├── DeviceError
    │   ├── DeviceNotFound      no such GPU, driver or library
    │   ├── DeviceBusy          another process is tuning this GPU
    │   ├── DeviceLost          the GPU fell off the bus
    │   ├── NoPermission        the driver wants more privilege
    │   ├── NotSupported        the part cannot do it
    │   └── SettingRefused      the part has no such clock or limit
    ├── InputError              a file or value that cannot be used as given
    ├── Infeasible              no choice meets the objective
    ├── PlanError               a plan that cannot be carried out
    ├── StoreError              the history cannot be read or written
    └── ConfigError             a setting of ours that makes no sense

Every error says in one line what is wrong and, in its hint, what to do next.
"""


class WattuneError(Exception):
    """One line of what is wrong, and a hint of what to do next."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.hint))


def _rebuild(kind: type[WattuneError], message: str, hint: str | None) -> WattuneError:
    return kind(message, hint=hint)


class DeviceError(WattuneError):
    """Something about a GPU."""


class DeviceNotFound(DeviceError):
    """There is no such GPU, or no driver to ask."""


class DeviceBusy(DeviceError):
    """Another process holds the controls of this GPU."""


class DeviceLost(DeviceError):
    """The GPU answered before and does not any more."""


class NoPermission(DeviceError):
    """The driver wants more privilege for this."""


class NotSupported(DeviceError):
    """This part, or its driver, cannot do this."""


class SettingRefused(DeviceError):
    """The part has no such clock or power limit."""


class InputError(WattuneError):
    """A file or a value that cannot be used as it was given."""


class Infeasible(WattuneError):
    """No choice that was tried meets the objective."""


class PlanError(WattuneError):
    """A plan that cannot be carried out."""


class StoreError(WattuneError):
    """The history cannot be read or written."""


class ConfigError(WattuneError):
    """A setting of wattune that makes no sense."""
