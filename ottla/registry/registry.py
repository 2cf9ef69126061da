"""One instance of the registry: it reads from its state, and writes as the leader or through the leader.

read       the state, which the log's reader keeps up
write      leader: check the schema, wait for the end of the log, decide, append, wait until it is replayed
           another instance: forward to the leader, then wait until the own state has what was written
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn, TypeVar

from ottla.registry import decisions
from ottla.registry.checking import Checker, Question
from ottla.registry.client import AVRO
from ottla.registry.decisions import Asked
from ottla.registry.election import Identity
from ottla.registry.errors import RegistryError
from ottla.registry.log import LeadershipLost, LogPlace, SchemaLog
from ottla.registry.references import MayRead, Needs, everything
from ottla.registry.registry_state import RegistryState
from ottla.registry.schema_records import Record, Version

logger = logging.getLogger(__name__)

#: A write waits this long for an election before it is rejected.
ELECTION_S_MAX = 5.0
#: A registration is checked at most this often, while other writes change the versions that it was compared with.
RECHECKS_MAX = 5
#: This replaces the differences, which would show an earlier version to a user who may write but not read.
NOT_READABLE = "an earlier version, which the user may not read"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Who:
    """The user of a request, the address, and what this user may read."""

    user: str = ""
    address: str = ""
    may_read: MayRead = everything

    def party(self, *, is_write: bool = False) -> Hashable:
        """Return the party that takes turns in the checking processes: a user; or without logins an address.

        Many clients may share an address, so its registrations do not wait for its checks.
        """
        return self.user or (self.address, is_write)


class SchemaRegistry:
    """The state, the log and the leadership of one instance."""

    def __init__(self, log: SchemaLog, checker: Checker, default_level: str) -> None:
        self.log = log
        self.checker = checker
        self.default_level = default_level
        self.leader: Identity | None = None
        self.is_leader = False
        #: The leader that could not be reached for the last forwarded write.
        self.unreachable: Identity | None = None
        #: It is set while a leader is known.
        self.elected = asyncio.Event()
        #: It is set when another instance has fenced this leader. The group may still name this one, so it has to elect again.
        self.displaced = asyncio.Event()
        self._writing = asyncio.Lock()
        self._changed = asyncio.Condition()

    @property
    def state(self) -> RegistryState:
        return self.log.state

    async def set_leader(self, leader: Identity | None, is_self: bool) -> None:
        """Take the result of an election. A new leader fences the former one, and reads the log to its end."""
        if is_self:
            # Even the same leader takes the next producer epoch in each generation: another instance may have led in between.
            async with self._writing:
                try:
                    await self.log.lead()
                except LeadershipLost:
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
        """Wait until an instance with another address than this leader's is the leader."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.leader is not None and self.leader.url != leader.url)

    async def known_leader(self) -> Identity:
        """Return the leader. If an election is going on, wait for it.

        Raises:
            RegistryError: there has been no leader for too long.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(ELECTION_S_MAX):
                await self.elected.wait()
        if self.leader is None:
            raise RegistryError("no_leader")
        return self.leader

    # -- Writing -------------------------------------------------------------------------------------------------------

    async def write(self, decide: Callable[[], tuple[T, list[Record]]]) -> tuple[T, LogPlace]:
        """Decide when the state has all records, and append.

        Return the response, and the place up to which a reader must have read.

        Raises:
            RegistryError: this instance is not the leader, or the log cannot be written.
        """
        async with self._writing:
            if not self.is_leader:
                raise RegistryError("no_leader")
            await self.log.sync()
            if not self.log.is_writable:
                try:
                    await self.log.lead()
                except LeadershipLost:
                    self._replaced()
            answer, rows = decide()
            if not rows:
                return answer, self.log.place
            try:
                return answer, await self.log.append(rows)
            except LeadershipLost:
                self._replaced()

    def _replaced(self) -> NoReturn:
        # Writes wait until the next result of the election.
        self.leader, self.is_leader = None, False
        self.elected.clear()
        self.displaced.set()
        raise RegistryError("no_leader") from None

    async def register(
        self, who: Who, subject: str, asked: Asked, *, normalize: bool, force: bool = False
    ) -> tuple[Version, LogPlace]:
        """Register a schema. Return its version, and the place up to which a reader must have read.

        It is checked before the write lock is taken, so that no other write waits for a slow check. Under the lock the
        questions are made again from the state. If they are the same, the results count; otherwise the check is repeated.
        """

        def decide(given: Asked, first: Question, kept: Asked, second: Question | None, messages: list[str]) -> Any:
            decisions.check_mode(self.state, subject, asked)
            if self._populated(subject, asked) != given or self._parsed(who, subject, given, normalize)[0] != first:
                return None, []
            kept = decisions.numbered(self.state, subject, kept)
            if second != (compared := self._compared(who, subject, kept, force)) and compared is not None:
                return None, []
            if compared is not None and messages:
                raise RegistryError("incompatible", subject, f"[{', '.join(messages)}]")
            return decisions.register(self.state, subject, kept)

        for _ in range(RECHECKS_MAX):
            decisions.check_mode(self.state, subject, asked)
            given = self._populated(subject, asked)
            first, resolved = self._parsed(who, subject, given, normalize)
            checked = await self.checker.check(first, who.party(is_write=True), is_write=True)
            kept = decisions.numbered(self.state, subject, replace(resolved, text=checked.canonical))
            second = self._compared(who, subject, kept, force)
            messages: list[str] = []
            if second is not None:
                messages = (await self.checker.check(second, who.party(is_write=True), is_write=True)).messages
                if messages and not who.may_read(subject):
                    messages = [NOT_READABLE]
            made, offset = await self.write(partial(decide, given, first, kept, second, messages))
            if made is not None:
                return made, offset
        raise RegistryError("timeout", "The subject has changed again and again while the schema was checked")

    # -- Checking ------------------------------------------------------------------------------------------------------

    async def find(self, who: Who, subject: str, asked: Asked, *, normalize: bool, deleted: bool) -> Version:
        """Return the version that has a schema.

        Raises:
            RegistryError: the subject does not have it, or there is no such subject.
        """
        if not self.state.versions(subject, deleted=deleted):
            raise RegistryError("subject", subject)
        question, resolved = self._parsed(who, subject, asked, normalize)
        checked = await self.checker.check(question, who.party())
        kept = replace(resolved, text=checked.canonical)
        found = decisions.find(self.state, subject, kept, deleted=deleted)
        if found is None:  # as a registration would find the version
            kept = decisions.numbered(self.state, subject, decisions.populated(self.state, subject, kept))
            found = decisions.find(self.state, subject, kept, deleted=deleted)
        if found is None:
            raise RegistryError("schema")
        return found

    async def incompatibilities(
        self, who: Who, subject: str, asked: Asked, earlier: list[Version], *, normalize: bool = False
    ) -> list[str]:
        """Return why a schema is incompatible with earlier versions of the subject, by the level of the subject."""
        question = self._question(who, subject, asked, earlier, normalize=normalize)
        return (await self.checker.check(question, who.party())).messages

    async def formatted(self, who: Who, version: Version, form: str) -> str:
        """Return the text of a version in a form that `?format=` requests."""
        if not form:
            return version.text
        needed = Needs(self.state, who.may_read).of(version.subject, version.references)
        question = Question(version.kind, version.text, needed, form=form, strict=False)
        return (await self.checker.check(question, who.party())).formatted

    def _populated(self, subject: str, asked: Asked) -> Asked:
        """Return the schema with the metadata and rules of the version before and of the configuration.

        Imported schemas get none.
        """
        if self.state.mode(subject) in decisions.IMPORTING and asked.text:
            return asked
        return decisions.populated(self.state, subject, asked)

    def _parsed(self, who: Who, subject: str, asked: Asked, normalize: bool) -> tuple[Question, Asked]:
        """Return the question whose answer is the canonical text, and the schema with the present versions of its references."""
        needs = Needs(self.state, who.may_read)
        resolved = replace(asked, references=needs.resolved(subject, asked.references))
        needed = needs.of(subject, resolved.references)
        normalize = normalize or self.state.setting(subject, "normalize") is True
        return Question(asked.kind, asked.text, needed, normalize=normalize), resolved

    def _compared(self, who: Who, subject: str, kept: Asked, force: bool) -> Question | None:
        """Return the question whether a version is compatible and its defaults are valid; None if it is not new, or needs no
        check.
        """
        found = decisions.find(self.state, subject, kept) if kept.version == 0 else None
        if found is not None or self.state.mode(subject) in decisions.IMPORTING:
            return None
        earlier = [] if force else self.state.versions(subject)
        question = self._question(who, subject, kept, earlier, normalize=False)
        return question if question.earlier or kept.kind == AVRO else None

    def _question(self, who: Who, subject: str, asked: Asked, earlier: list[Version], *, normalize: bool) -> Question:
        level = str(self.state.setting(subject, "compatibilityLevel") or self.default_level)
        group = self.state.setting(subject, "compatibilityGroup")
        if group:
            wanted = _property(asked.metadata, group)
            earlier = [row for row in earlier if _property(row.metadata, group) == wanted]
        if not level.endswith("_TRANSITIVE"):
            earlier = earlier[-1:]
        question = replace(self._parsed(who, subject, asked, normalize)[0], is_new=True)
        if level == "NONE" or not earlier:
            return question
        needs = Needs(self.state, who.may_read)
        for row in earlier:
            needs.count(len(row.text))
        return replace(
            question,
            level=level,
            lenient=str(self.state.setting(subject, "compatibilityPolicy") or "").upper() == "LENIENT",
            earlier=tuple((row, needs.of(row.subject, row.references)) for row in earlier),
        )


def _property(metadata: Mapping[str, Any] | None, name: str) -> Any:
    return ((metadata or {}).get("properties") or {}).get(name)
