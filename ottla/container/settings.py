"""Properties from the environment of a container, each with its origin, and further messages for the operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

#: Gives the bytes of a file, or None where there is none. Mapping is pure but for this.
ReadFile = Callable[[str], bytes | None]
Environment = Mapping[str, str]


class Setting(NamedTuple):
    """A property's value, and where it came from: a variable, a file, or the image."""

    value: str
    origin: str


class ContainerError(Exception):
    """The container cannot run. Its text is one line: where, what, and the remedy."""

    def __init__(self, what: str, where: str, remedy: str) -> None:
        super().__init__(f"{where}: {what}; {remedy}" if where else f"{what}; {remedy}")
        self.what = what
        self.where = where
        self.remedy = remedy


@dataclass(slots=True)
class Resolution:
    """The outcome of mapping. Later settings of a name win over earlier ones, as later lines of a properties file do."""

    dialect: str
    reason: str
    settings: dict[str, Setting] = field(default_factory=dict)
    #: The id that was asked for, and the one to take for directories that have none yet.
    cluster_id: Setting | None = None
    default_cluster_id: str | None = None
    notes: list[str] = field(default_factory=list)
    #: SCRAM credentials to be written when a cluster begins: (user, password) by origin.
    users: list[tuple[str, str]] = field(default_factory=list)
    log_level: str | None = None

    def set(self, name: str, value: str, origin: str) -> None:
        self.settings[name] = Setting(value, origin)

    def set_default(self, name: str, value: str, origin: str) -> None:
        self.settings.setdefault(name, Setting(value, origin))

    def get(self, name: str) -> str | None:
        found = self.settings.get(name)
        return None if found is None else found.value

    def origin(self, name: str) -> str:
        found = self.settings.get(name)
        return "" if found is None else found.origin

    @property
    def properties(self) -> dict[str, str]:
        return {name: setting.value for name, setting in self.settings.items()}
