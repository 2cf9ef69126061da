"""Properties from the environment of a container, each with its origin, and notes for the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.server.config.broker import is_secret
from ottla.server.config.key import ConfigError
from ottla.server.config.properties_file import read_properties
from ottla.server.config.settings import OWN_CONFIGS

#: Returns the bytes of a file, or None if it does not exist. Apart from this, the mapping has no I/O.
ReadFile = Callable[[str], bytes | None]
Environment = Mapping[str, str]

HIDDEN = "[hidden]"
ORIGIN_COLUMN_MAX = 72


class ContainerSetting(NamedTuple):
    """The value of a property and its origin: a variable, a file, or the image."""

    value: str
    origin: str


class ContainerError(Exception):
    """The container cannot run. The text is one line: the place, the problem and the remedy."""

    def __init__(self, what: str, where: str, remedy: str) -> None:
        super().__init__(f"{where}: {what}; {remedy}" if where else f"{what}; {remedy}")
        self.what = what
        self.where = where
        self.remedy = remedy


class User(NamedTuple):
    """A name and a password for SCRAM, which are written when the directories are formatted."""

    name: str
    password: str

    def __repr__(self) -> str:
        return f"<User {self.name}>"


@dataclass(slots=True)
class Resolution:
    """The result of the mapping. A later setting of a name wins over an earlier one, as in a properties file."""

    dialect: str
    reason: str
    settings: dict[str, ContainerSetting] = field(default_factory=dict)
    #: The given id, and the id for directories that have none yet.
    cluster_id: ContainerSetting | None = None
    default_cluster_id: str | None = None
    notes: list[str] = field(default_factory=list)
    users: list[User] = field(default_factory=list)
    #: The first voters of a dynamic quorum, in the form of `kafka-storage format --initial-controllers`.
    initial_controllers: str | None = None
    #: Topics to create once the node serves, in the form of wurstmeister's KAFKA_CREATE_TOPICS.
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
        """Return the lines that the entry point prints before the node's own log: all properties with their origins, without
        secrets.
        """
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
    """Return the value for a log: passwords are hidden, and so are the values of unknown properties, as in Kafka."""
    own = OWN_CONFIGS.get(name)
    hidden = is_secret(name) if own is None else own.secret
    return HIDDEN if hidden else value.replace("\n", "\\n")


# -- Text of Java's properties format ----------------------------------------------------------------------------------


def read_value(where: str, text: str) -> str:
    """Return a variable's value as a properties file would have it: escapes are resolved, and blanks in front are left out."""
    if "\\" not in text and "\n" not in text:
        return text.strip()
    # A line that ends in the middle of an escape would swallow the next property, so that is prevented here.
    return read_file(f"x={text}".encode(), where).get("x", "")


def read_file(data: bytes, where: str) -> dict[str, str]:
    try:
        return read_properties(data, where)
    except ConfigError as fault:
        raise ContainerError(str(fault), where, fault.what_to_try) from None


def write_file(properties: Mapping[str, str]) -> str:
    """Return a text of a properties file that has the same properties."""
    import javaproperties

    return str(javaproperties.dumps(properties, timestamp=False))
