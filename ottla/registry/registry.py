"""One instance of the registry: it answers reads from its state, and writes as the leader or through it.

read       the state, which the log's reader keeps up
write      leader: wait for the end of the log, check the schema, decide, append, wait until it is replayed
           another instance: forward to the leader, then wait until the own state has what was written
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from ottla.registry import decisions
from ottla.registry.checking import Checked, Checker
from ottla.registry.decisions import Asked
from ottla.registry.election import Identity
from ottla.registry.errors import RegistryError
from ottla.registry.log import Fenced, SchemaLog
from ottla.registry.registry_state import State
from ottla.registry.schema_records import Record, Version

logger = logging.getLogger(__name__)

#: A write waits so long for an election before it is rejected.
ELECTION_S_MAX = 5.0
T = TypeVar("T")


class Registry:
    """State, log and leadership of one instance."""

    def __init__(self, log: SchemaLog, checker: Checker, default_level: str) -> None:
        self.log = log
        self.checker = checker
        self.default_level = default_level
        self.leader: Identity | None = None
        self.is_leader = False
        #: The leader to which the last forwarded write did not get.
        self.unreachable: Identity | None = None
        #: Set while a leader is known.
        self.elected = asyncio.Event()
        self._writing = asyncio.Lock()
        self._changed = asyncio.Condition()

    @property
    def state(self) -> State:
        return self.log.state

    async def set_leader(self, leader: Identity | None, is_self: bool) -> None:
        """Take the outcome of an election. Who becomes the leader shuts the one before it out, and reads the log to its end."""
        if is_self:
            # In each generation: another instance may have led between two of this one's.
            async with self._writing:
                try:
                    await self.log.lead()
                except Fenced:
                    raise RegistryError("no_leader") from None
        elif not is_self:
            self.log.resign()
        if leader != self.leader or is_self != self.is_leader:
            logger.info("the leader is %s", "this instance" if is_self else leader.url if leader else "not known")
        self.leader, self.is_leader = leader, is_self
        if leader is None:
            self.elected.clear()
        else:
            self.elected.set()
        async with self._changed:
            self._changed.notify_all()

    async def until_another_leads(self, leader: Identity) -> None:
        """Wait until an instance with another address than this leader's leads."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.leader is not None and self.leader.url != leader.url)

    async def known_leader(self) -> Identity:
        """Return the leader. An election that goes on is waited for.

        Raises:
            RegistryError: there is none for too long.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(ELECTION_S_MAX):
                await self.elected.wait()
        if self.leader is None:
            raise RegistryError("no_leader")
        return self.leader

    # -- Writing -------------------------------------------------------------------------------------------------------

    async def write(self, decide: Callable[[], Awaitable[tuple[T, list[Record]]]]) -> tuple[T, int]:
        """Decide with a state that has all records, and append. Returns the answer, and the offset that a reader must have.

        Raises:
            RegistryError: this instance is not the leader, or the log cannot be written.
        """
        async with self._writing:
            if not self.is_leader:
                raise RegistryError("no_leader")
            await self.log.sync()
            answer, rows = await decide()
            if not rows:
                return answer, self.log.position
            try:
                if not self.log.is_writable:
                    await self.log.lead()
                return answer, await self.log.append(rows)
            except Fenced:
                # The election goes on: until its outcome, writes wait for it.
                self.leader, self.is_leader = None, False
                self.elected.clear()
                raise RegistryError("no_leader") from None

    async def register(
        self, subject: str, asked: Asked, *, normalize: bool, force: bool = False
    ) -> tuple[Version, int]:
        """Register a schema: the version that it has, and the offset that a reader must have."""

        async def decide() -> tuple[Version, list[Record]]:
            decisions.check_mode(self.state, subject, asked)
            checked = await self._checked(subject, asked, normalize=normalize)
            kept = replace(asked, text=checked.canonical)
            found = decisions.find(self.state, subject, kept) if kept.version == 0 else None
            importing = self.state.mode(subject) in decisions.IMPORTING
            if found is None and not importing and not force:
                messages = await self.incompatibilities(subject, kept, self.state.versions(subject))
                if messages:
                    raise RegistryError("incompatible", subject, f"[{', '.join(messages)}]")
            return decisions.register(self.state, subject, kept)

        return await self.write(decide)

    # -- Checking ------------------------------------------------------------------------------------------------------

    async def find(self, subject: str, asked: Asked, *, normalize: bool, deleted: bool) -> Version:
        """Return the version that has a schema.

        Raises:
            RegistryError: the subject does not have it, or there is no such subject.
        """
        if not self.state.versions(subject, deleted=deleted):
            raise RegistryError("subject", subject)
        checked = await self._checked(subject, asked, normalize=normalize)
        found = decisions.find(self.state, subject, replace(asked, text=checked.canonical), deleted=deleted)
        if found is None:
            raise RegistryError("schema")
        return found

    async def incompatibilities(
        self, subject: str, asked: Asked, earlier: list[Version], *, normalize: bool = False
    ) -> list[str]:
        """Return why a schema is incompatible with earlier versions of the subject, by the level of the subject."""
        level = str(self.state.setting(subject, "compatibilityLevel") or self.default_level)
        group = self.state.setting(subject, "compatibilityGroup")
        if group:
            wanted = _property(asked.metadata, group)
            earlier = [row for row in earlier if _property(row.metadata, group) == wanted]
        if not level.endswith("_TRANSITIVE"):
            earlier = earlier[-1:]
        if level == "NONE" or not earlier:
            await self._checked(subject, asked, normalize=normalize)
            return []
        needed = decisions.dependencies_of(self.state, subject, asked.references)
        checked = await self.checker.check(
            asked.kind,
            asked.text,
            needed,
            normalize=normalize,
            level=level,
            lenient=str(self.state.setting(subject, "compatibilityPolicy") or "").upper() == "LENIENT",
            earlier=[(row, decisions.dependencies_of(self.state, row.subject, row.references)) for row in earlier],
        )
        return checked.messages

    async def formatted(self, version: Version, form: str) -> str:
        """Return the text of a version in a form that `?format=` asks for."""
        if not form:
            return version.text
        needed = decisions.dependencies_of(self.state, version.subject, version.references)
        checked = await self.checker.check(version.kind, version.text, needed, form=form, strict=False)
        return checked.formatted

    async def _checked(self, subject: str, asked: Asked, *, normalize: bool) -> Checked:
        needed = decisions.dependencies_of(self.state, subject, asked.references)
        normalize = normalize or self.state.setting(subject, "normalize") is True
        return await self.checker.check(asked.kind, asked.text, needed, normalize=normalize)


def _property(metadata: Mapping[str, Any] | None, name: str) -> Any:
    return ((metadata or {}).get("properties") or {}).get(name)
