"""A request as the handlers see it: its user, its parameters, its body, and the registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from ottla.registry.access import Access
from ottla.registry.errors import RegistryError
from ottla.registry.numbers import int32, json_from
from ottla.registry.registry import SchemaRegistry, Who
from ottla.registry.registry_state import RegistryState
from ottla.registry.subjects import context_of, is_valid, normal

#: A longer body is not read: a schema has at most a million characters.
BODY_BYTES_MAX = 4 * 1024 * 1024
#: A response lists at most this many, as in Confluent's registry by default.
LIMIT_MAX = 20_000


@dataclass(frozen=True, slots=True)
class RestCall:
    """One request."""

    registry: SchemaRegistry
    access: Access
    user: str
    request: Request
    body: bytes
    #: The parameters of the path, by their names in its row. An alias is replaced by its subject.
    parameters: dict[str, str]
    #: The client's address, if another instance forwards its request.
    address: str = ""

    @property
    def state(self) -> RegistryState:
        return self.registry.state

    @property
    def subject(self) -> str:
        """The subject of the path, by its shortest name; empty for paths without one."""
        return normal(self.parameters.get("subject", ""))

    @property
    def who(self) -> Who:
        address = self.address or (self.request.client.host if self.request.client is not None else "")
        return Who(self.user, address, self.may_read)

    def flag(self, name: str) -> bool:
        return str(self.request.query_params.get(name, "")).lower() == "true"

    def text(self, name: str, default: str = "") -> str:
        return str(self.request.query_params.get(name, default))

    def json(self) -> Any:
        try:
            return json_from(self.body)
        except (ValueError, RecursionError) as fault:
            raise RegistryError("body", str(fault)[:200]) from None

    def require(self, operation: str, subject: str | None = None) -> None:
        self.access.require(self.user, operation, self.subject if subject is None else subject)

    def may_read(self, subject: str) -> bool:
        return self.access.may(self.user, "read", subject)

    def check_subject(self) -> None:
        if not is_valid(self.subject):
            raise RegistryError("invalid_subject", self.subject)

    def page(self, rows: Sequence[Any]) -> list[Any]:
        """Return the part of a list that `offset` and `limit` select."""
        offset, limit = self._number("offset", 0), self._number("limit", -1)
        offset = max(offset, 0)
        return list(rows[offset : offset + (limit if 0 <= limit <= LIMIT_MAX else LIMIT_MAX)])

    def context(self) -> str:
        """Return the context that `?subject=` names."""
        return context_of(self.text("subject"))

    def _number(self, name: str, default: int) -> int:
        text = self.text(name)
        number = int32(text) if text else default
        if number is None:  # JAX-RS responds in this way
            raise RegistryError("no_such_path")
        return number
