"""The references of schemas, direct and indirect. Each schema is visited once.

All uses of references walk here: registrations, lookups, checks, `?format=`. One walk serves one request of a client, with one
bound for all schemas of the request, because the event loop waits for it: 20,000 references take about 20 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from ottla.registry.client import Reference
from ottla.registry.errors import RegistryError
from ottla.registry.numbers import LATEST
from ottla.registry.registry_state import RegistryState
from ottla.registry.schema_records import Version
from ottla.registry.subjects import context_of, in_same_context

#: Schemas hardly ever need more others than this.
DEPENDENCIES_MAX = 1_000
#: One request may walk this many references, and read this many characters of their texts.
STEPS_MAX = 20_000
TEXT_CHARS_MAX = 16_000_000

References: TypeAlias = tuple[Reference, ...]
Place: TypeAlias = tuple[str, int]
MayRead: TypeAlias = Callable[[str], bool]


def everything(subject: str) -> bool:
    """Return the rights of a user who may read all subjects."""
    return True


class Needs:
    """The walks of one request. For a subject that the user may not read, the response is the same as for a missing one."""

    def __init__(self, state: RegistryState, may_read: MayRead = everything) -> None:
        self._state = state
        self._may_read = may_read
        self._made: dict[tuple[str, References], dict[str, str]] = {}
        self._counted: set[Place] = set()
        self._steps = 0
        self._chars = 0

    def of(self, subject: str, references: References) -> dict[str, str]:
        """Return the texts of all schemas that a schema of the subject needs, by the names of their imports, each after those
        that this one needs itself. As in Confluent's registry, of two schemas with the same name the first one counts.

        Raises:
            RegistryError: one is missing, they need each other in a circle, or there are too many.
        """
        key = (context_of(subject), references)
        if key not in self._made:
            self._made[key] = self._walk(subject, references)
        return self._made[key]

    def resolved(self, subject: str, references: References) -> References:
        """Return the references with the number of the latest version in place of LATEST.

        Raises:
            RegistryError: there is no such subject.
        """
        return tuple(self._numbered(subject, row) if row.version == LATEST else row for row in references)

    def _numbered(self, subject: str, row: Reference) -> Reference:
        return replace(row, version=self._version(subject, row, deleted=False).version)

    def _version(self, subject: str, row: Reference, *, deleted: bool) -> Version:
        target = in_same_context(row.subject, subject)
        found = self._state.version(target, row.version, deleted=deleted) if self._may_read(target) else None
        if found is None:
            text = f'No schema reference found for subject "{row.subject}" and version {row.version}'
            raise RegistryError("invalid_schema", text)
        return found

    def _walk(self, subject: str, references: References) -> dict[str, str]:
        found: dict[str, str] = {}
        done: set[Place] = set()
        above: list[Place] = []
        # For each schema on the way down: its remaining references, and the name under which it was reached.
        stack: list[tuple[str, Iterator[Reference], str, Version | None]] = [(subject, iter(references), "", None)]
        while stack:
            parent, rows, name, version = stack[-1]
            row = next(rows, None)
            if row is None:
                stack.pop()
                if version is not None:
                    done.add(above.pop())
                    found.setdefault(name, version.text)
                continue
            self._step()
            needed = self._version(parent, row, deleted=True)
            place = (needed.subject, needed.version)
            if place in done:
                found.setdefault(row.name, needed.text)
            elif place in above:
                raise RegistryError("invalid_schema", f'the schema of subject "{row.subject}" needs itself')
            else:
                self._enter(place, needed, len(done) + len(above))
                above.append(place)
                stack.append((needed.subject, iter(needed.references), row.name, needed))
        return found

    def _step(self) -> None:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise RegistryError("invalid_schema", f"the schemas have more than {STEPS_MAX} references")

    def _enter(self, place: Place, needed: Version, entered: int) -> None:
        if entered >= DEPENDENCIES_MAX:
            raise RegistryError("invalid_schema", f"the schema needs more than {DEPENDENCIES_MAX} others")
        if place not in self._counted:
            self._counted.add(place)
            self.count(len(needed.text))

    def count(self, chars: int) -> None:
        """Count the characters of a further text that the request needs.

        Raises:
            RegistryError: together they are too many.
        """
        self._chars += chars
        if self._chars > TEXT_CHARS_MAX:
            raise RegistryError("invalid_schema", f"the schemas have more than {TEXT_CHARS_MAX} characters together")
