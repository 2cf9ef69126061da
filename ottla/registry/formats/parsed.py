"""A parsed schema: what the registry asks of each of the three formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class InvalidSchema(Exception):
    """The schema does not parse, or is not valid. The text is the reason for the user."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A change between two schemas: its kind, such as TYPE_CHANGED, where it is, and the sentence about it."""

    kind: str
    path: str
    text: str


class ParsedSchema(Protocol):
    """A schema of one of the formats."""

    kind: str

    @property
    def canonical(self) -> str:
        """The text that is kept: the identity of the schema within its subject."""

    def normalized(self) -> str:
        """Return the text of `?normalize=true`: equal for schemas that differ in nothing that matters."""

    def formatted(self, name: str) -> str:
        """Return the text in a form that a client asks for by `?format=`; an unknown form is the canonical one."""

    def incompatible(self, writer: ParsedSchema) -> list[str]:
        """Return why this schema cannot read all that was written by `writer`, a schema of the same format; empty if it can."""

    def check(self) -> None:
        """Check what costs more than parsing, before a schema is registered.

        Raises:
            InvalidSchema: the schema is not valid.
        """
