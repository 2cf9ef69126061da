"""The ssl.* properties of one listener, or of a client, with the names under which they were set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.server.config.broker import is_secret
from ottla.server.config.errors import ConfigError
from ottla.server.config.key import HIDDEN, Values

#: Returns the content of a file, or None if there is none.
Read = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True)
class TlsProperties:
    """The properties of one side. `own`, those with the listener's prefix, have precedence."""

    values: Values
    read: Read
    own: Values = field(default_factory=dict)
    prefix: str = ""

    def __getitem__(self, name: str) -> Any:
        return self.own[name] if name in self.own else self.values[name]

    def name_of(self, name: str) -> str:
        """Returns the name with which the operator has set the property, or would set it."""
        return self.prefix + name if name in self.own else name

    def error(self, name: str, why: str, remedy: str) -> ConfigError:
        """The message shows the value, unless it is secret."""
        return ConfigError(self.name_of(name), HIDDEN if is_secret(name) else self[name], why, remedy)
