"""The settings of wattune and their origins. No other module reads environment variables or settings files."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from wattune.core.errors import ConfigError
from wattune.core.tariff import Tariff, parse_intensity, parse_price

APP = "wattune"
PROFILE_FOLDER = "WATTUNE_PROFILE_FOLDER"
REQUIRE_GPU = "WATTUNE_REQUIRE_GPU"


@dataclass(frozen=True, slots=True)
class Option:
    """A setting: its name in the file, its environment variable, and its meaning."""

    name: str
    variable: str
    meaning: str


OPTIONS = (
    Option("device", "WATTUNE_DEVICE", "the GPU that commands use where none is named"),
    Option("require_gpu", REQUIRE_GPU, "true: no simulated GPU takes the place of a missing one"),
    Option("store", "WATTUNE_STORE", "where the history is kept: a file, or a postgresql:// URL"),
    Option("state", "WATTUNE_STATE", "folder of the journals that restore GPUs after a crash"),
    Option("locks", "WATTUNE_LOCKS", "folder of the locks by which all users of a machine share its GPUs"),
    Option("cache", "WATTUNE_CACHE", "folder for files that can be made again, such as the emulated library"),
    Option("data", "WATTUNE_DATA", "folder of public measurements that benches and tests compare with"),
    Option("electricity_price", "WATTUNE_ELECTRICITY_PRICE", "price of a kWh with its currency, such as 0.30 EUR"),
    Option("grid_intensity", "WATTUNE_GRID_INTENSITY", "grams of CO₂ per kWh, or a CSV of them over the time of day"),
)


_PLAIN = ("electricity_price", "grid_intensity", "require_gpu")
"""Settings that a file may hold as a number or as true or false, without quotes."""
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a setting and its origin."""

    option: Option
    value: str | None
    origin: str


@dataclass(frozen=True, slots=True)
class Config:
    """All settings, each with its origin."""

    values: tuple[Value, ...]
    visible_gpus: str | None = None
    """CUDA_VISIBLE_DEVICES; None where it is not set."""
    profile_folder: Path | None = None
    """Folder in which `wattune pipeline profile` waits for what the ranks of its program measure; None without it."""
    kernels: str | None = None
    """WATTUNE_KERNELS: what `wattune kernels measure` asks the program that it runs for; None elsewhere."""
    gpu_order: str | None = None
    """CUDA_DEVICE_ORDER; None where it is not set."""

    def _get(self, name: str) -> str | None:
        return next(value.value for value in self.values if value.option.name == name)

    @property
    def device(self) -> str:
        return self._get("device") or "auto"

    @property
    def require_gpu(self) -> bool:
        text = (self._get("require_gpu") or "false").strip().lower()
        if text not in _TRUTHS:
            raise ConfigError(f"require_gpu is {text!r}", hint=f"write one of {', '.join(_TRUTHS)}")
        return _TRUTHS[text]

    @property
    def store_url(self) -> str:
        """The URL of the history's database."""
        store = self._get("store") or ""
        return store if "://" in store else f"sqlite:///{_path(store).absolute()}"

    @property
    def state_dir(self) -> Path:
        return _path(self._get("state") or "")

    @property
    def lock_dir(self) -> Path:
        return Path(self._get("locks") or "").expanduser()

    @property
    def cache_dir(self) -> Path:
        return _path(self._get("cache") or "")

    @property
    def data_dir(self) -> Path | None:
        data = self._get("data")
        return _path(data) if data else None

    @property
    def tariff(self) -> Tariff:
        """Price and grid intensity of electricity, checked; without them only kWh are known."""
        price, intensity = self._get("electricity_price"), self._get("grid_intensity")
        return Tariff(
            price=parse_price(price) if price else None,
            intensity=parse_intensity(intensity, path_of=_path) if intensity else None,
        )


def _path(text: str) -> Path:
    """Return the path that a setting names, with `~` for the home folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ConfigError(f"there is no home folder for {text!r}", hint="write the whole path") from None


def load_config(environment: Mapping[str, str] | None = None, file: Path | None = None) -> Config:
    """Load the settings: the environment overrides the file, which overrides the defaults."""
    environment = os.environ if environment is None else environment
    file = file or Path(environment.get("WATTUNE_CONFIG") or Path(platformdirs.user_config_dir(APP)) / "config.toml")
    written = _read(file)
    defaults: dict[str, str] = {
        "device": "auto",
        "require_gpu": "false",
        "store": str(Path(platformdirs.user_data_dir(APP)) / "history.db"),
        "state": platformdirs.user_state_dir(APP),
        "locks": "/run/lock",
        "cache": platformdirs.user_cache_dir(APP),
    }
    values = tuple(_value(option, environment, file, written, defaults.get(option.name)) for option in OPTIONS)
    folder = environment.get(PROFILE_FOLDER)
    return Config(
        values,
        environment.get("CUDA_VISIBLE_DEVICES"),
        Path(folder) if folder else None,
        environment.get("WATTUNE_KERNELS") or None,
        environment.get("CUDA_DEVICE_ORDER"),
    )


def _value(
    option: Option, environment: Mapping[str, str], file: Path, written: Mapping[str, str], default: str | None
) -> Value:
    if environment.get(option.variable):
        return Value(option, environment[option.variable], f"environment variable {option.variable}")
    if option.name in written:
        return Value(option, written[option.name], f"file {file}")
    return Value(option, default, "default")


def _read(file: Path) -> dict[str, str]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, not TOML, or too long a number
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())  # str() would repeat the name
        raise ConfigError(
            f"cannot read the settings file {file}: {reason}", hint="correct it or move it away"
        ) from None
    known = {option.name for option in OPTIONS}
    for name, value in document.items():
        if name not in known:
            raise ConfigError(
                f"{file}: there is no setting {name!r}", hint=f"the settings are {', '.join(sorted(known))}"
            )
        if name in _PLAIN and isinstance(value, bool | int | float):
            document[name] = str(value)
        elif not isinstance(value, str):
            raise ConfigError(f"{file}: setting {name!r} is not a text", hint=f'write it in quotes: {name} = "…"')
    return document
