"""Properties from the environment of a container, each with its origin, and further messages for the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.server.config.broker import is_secret
from ottla.server.config.key import ConfigError
from ottla.server.config.properties_file import read_properties
from ottla.server.config.settings import OWN_CONFIGS

#: Gives the bytes of a file, or None where there is none. Mapping is pure but for this.
ReadFile = Callable[[str], bytes | None]
Environment = Mapping[str, str]

HIDDEN = "[hidden]"
ORIGIN_COLUMN_MAX = 72


class ContainerSetting(NamedTuple):
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


class User(NamedTuple):
    """A name and a password for SCRAM, to be written when the directories are formatted."""

    name: str
    password: str

    def __repr__(self) -> str:
        return f"<User {self.name}>"


@dataclass(slots=True)
class Resolution:
    """The outcome of mapping. Later settings of a name win over earlier ones, as later lines of a properties file do."""

    dialect: str
    reason: str
    settings: dict[str, ContainerSetting] = field(default_factory=dict)
    #: The id that was asked for, and the one to take for directories that have none yet.
    cluster_id: ContainerSetting | None = None
    default_cluster_id: str | None = None
    notes: list[str] = field(default_factory=list)
    users: list[User] = field(default_factory=list)
    #: The first voters of a dynamic quorum, as `kafka-storage format --initial-controllers` takes them.
    initial_controllers: str | None = None
    #: Topics to be created once the node serves, as wurstmeister's KAFKA_CREATE_TOPICS has them.
    topics: ContainerSetting | None = None
    log_level: str | None = None

    def set(self, name: str, value: str, origin: str) -> None:
        self.settings[name] = ContainerSetting(value, origin)

    def set_default(self, name: str, value: str, origin: str) -> None:
        self.settings.setdefault(name, ContainerSetting(value, origin))

    def get(self, name: str) -> str | None:
        found = self.settings.get(name)
        return None if found is None else found.value

    def origin(self, name: str) -> str:
        found = self.settings.get(name)
        return "" if found is None else found.origin

    @property
    def properties(self) -> dict[str, str]:
        return {name: setting.value for name, setting in self.settings.items()}

    def report(self, unknown: Sequence[str]) -> Iterator[str]:
        """Return what the entry point prints before the node's own log: all properties with their origins, without secrets."""
        yield f"===> Environment as of {self.dialect} ({self.reason})"
        rows = [
            (f"{name}={_shown(name, setting.value)}", setting.origin) for name, setting in sorted(self.settings.items())
        ]
        if self.cluster_id is not None:
            rows.insert(0, (f"cluster id {self.cluster_id.value}", self.cluster_id.origin))
        width = min(max((len(text) for text, _ in rows), default=0), ORIGIN_COLUMN_MAX)
        for text, origin in rows:
            yield f"     {text:{width}}  # {origin}"
        for note in self.notes:
            yield f"===> Note: {note}"
        if unknown:
            listed = ", ".join(f"{name} ({self.origin(name) or 'alias'})" for name in unknown)
            yield f"===> Not known, and ignored: {listed}"


def _shown(name: str, value: str) -> str:
    """Return the value as it may stand in a log: passwords are hidden, and so is what is not known, as Kafka does."""
    own = OWN_CONFIGS.get(name)
    hidden = is_secret(name) if own is None else own.secret
    return HIDDEN if hidden else value.replace("\n", "\\n")


# -- Text of Java's properties format ----------------------------------------------------------------------------------


def read_value(where: str, text: str) -> str:
    """Return a variable's value as a properties file has it: escapes resolved, blanks in front left out."""
    if "\\" not in text and "\n" not in text:
        return text.strip()
    # A line that ends in the middle of an escape would swallow the next property; there is none here.
    return read_file(f"x={text}".encode(), where).get("x", "")


def read_file(data: bytes, where: str) -> dict[str, str]:
    try:
        return read_properties(data, where)
    except ConfigError as fault:
        raise ContainerError(str(fault), where, fault.what_to_try) from None


def write_file(properties: Mapping[str, str]) -> str:
    """Return text from which the same properties are read."""
    import javaproperties

    return str(javaproperties.dumps(properties, timestamp=False))
