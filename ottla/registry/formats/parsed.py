"""A parsed schema: the interface to the three formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class InvalidSchema(Exception):
    """The schema does not parse, or is not valid. The text has the reason for the user."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A change between two schemas: its kind, such as TYPE_CHANGED, its place, and a sentence about it."""

    kind: str
    path: str
    text: str


class ParsedSchema(Protocol):
    """A schema of one of the formats."""

    kind: str

    @property
    def canonical(self) -> str:
        """The canonical text. It is the identity of the schema within its subject."""

    def normalized(self) -> str:
        """Return the text for `?normalize=true`: schemas without a difference in meaning have the same text."""

    def formatted(self, name: str) -> str:
        """Return the text in a form that a client requests with `?format=`. An unknown form is the canonical one."""

    def incompatible(self, writer: ParsedSchema) -> list[str]:
        """Return why this schema cannot read all values of `writer`, a schema of the same format; the list is empty if it can."""

    def check(self) -> None:
        """Make the checks that take longer than parsing, before a schema is registered.

        Raises:
            InvalidSchema: the schema is not valid.
        """
