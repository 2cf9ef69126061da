"""Schemas of a registry for the pages: Ottla's registry, or any other with Confluent's REST API. Its responses are not trusted.

The client bounds the bytes and the time of each response (`ottla/registry/client.py`). At most QUESTIONS requests are in flight
at once, on separate threads, and a text that is longer than TEXT_CHARS_MAX is cut before it is shown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ottla.client.failures import Failure, Kind
from ottla.console.record_view import visible
from ottla.console.schema_texts import (
    KINDS,
    LEVELS,
    DiffLine,
    SchemaVersion,
    difference,
    record_name,
    shown_text,
)
from ottla.registry.client import AVRO, RegistryClient, RegistryFailed, Schema, quote
from ottla.registry.encoder import EncodeFailed, Encoder

T = TypeVar("T")

QUESTIONS = 4
NAME_CHARS_MAX = 1_000
MESSAGE_CHARS_MAX = 10_000
#: A page has at most this many versions of a subject, the newest ones.
VERSIONS_MAX = 1_000
#: The most rows of references and of messages, and of the versions of one schema.
ROWS_MAX = 100
#: This many schemas that refer to another one are looked up, for at most this time.
REFERRING_MAX, REFERRING_S_MAX = 20, 5.0
#: The error codes of a registry for what it does not have: HTTP's own, and those that begin with it.
NOT_FOUND = frozenset({404, *range(40400, 40500)})
#: The codes of a subject, a version or a schema that the registry lacks. 404 alone may mean that the URL is of no registry.
NO_SUCH_SCHEMA = (40401, 40402, 40403)


class SubjectView(NamedTuple):
    """A subject with one of its versions, as a page shows it.

    `level` is the effective level; `is_own` means that it is set on the subject itself.
    """

    versions: list[int]
    shown: SchemaVersion
    pretty: str
    cut: bool
    #: The full name of the record, which some strategies use in subjects' names.
    record: str | None
    level: str
    is_own: bool
    #: The subjects and versions that refer to this schema.
    referring: list[tuple[str, int]]


class SchemaVerdict(NamedTuple):
    """Whether a new schema is compatible, and if not, why."""

    compatible: bool
    messages: list[str]


class SchemaBrowser:
    """One registry, with the requests that the pages need."""

    def __init__(self, client: RegistryClient) -> None:
        self.client = client
        self._turns = asyncio.Semaphore(QUESTIONS)
        self._encoder = Encoder()

    async def subjects(self) -> list[str]:
        """Return the names of all subjects.

        Raises:
            Failure: the registry does not answer, or not as a registry does. All requests here raise this.
        """
        return await self._ask(
            lambda: sorted(
                row
                for row in _rows(self.client.get("/subjects"))
                if isinstance(row, str) and len(row) <= NAME_CHARS_MAX
            )
        )

    async def latest(self, subjects: Sequence[str]) -> dict[str, SchemaVersion]:
        """Return the latest version of each of the subjects that have one."""
        asked = (self._ask(partial(self._latest, name)) for name in subjects)
        found = await asyncio.gather(*asked, return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException) and not isinstance(each, Failure):
                raise each
        return {name: row for name, row in zip(subjects, found, strict=True) if isinstance(row, SchemaVersion)}

    async def compare(self, subject: str, old: int, new: int) -> list[DiffLine]:
        """Return the differences between two versions, as texts with a line for each part."""

        def ask() -> list[DiffLine]:
            texts = [shown_text(_version(self.client.version(subject, number)))[0] for number in (old, new)]
            return difference(*texts)

        return await self._ask(ask)

    async def global_level(self) -> str:
        return await self._ask(lambda: _level(self.client.get("/config")))

    async def view(self, subject: str, version: int | None) -> SubjectView:
        """Return a subject with a version; None means the latest one."""
        return await self._ask(lambda: self._view(subject, version))

    async def encode(self, subject: str, text: str, message: str = "") -> bytes:
        """Return the bytes of a value that is given as JSON, encoded by the latest schema of a subject."""

        def ask() -> tuple[int, Schema]:
            found = _version(self.client.version(subject))
            return found.id, self.client.schema(found.id, subject)

        schema_id, schema = await self._ask(ask)
        try:
            return await self._encoder.encode(schema_id, schema, text, message)
        except EncodeFailed as fault:
            raise Failure(f"by the schema of {subject}: {visible(str(fault))}", None, Kind.WRONG) from None

    async def close(self) -> None:
        await self._encoder.close()

    async def check(self, subject: str, kind: str, text: str, version: str) -> SchemaVerdict:
        """Return whether a new text is compatible with a version: a number, "latest", or "" for the versions that the level
        requires.
        """
        place = f"/versions/{version}" if version else "/versions"
        path = f"/compatibility/subjects/{quote(subject)}{place}?verbose=true"

        def ask() -> SchemaVerdict:
            row = self.client.request("POST", path, _body(kind, text))
            if not isinstance(row, dict) or not isinstance(row.get("is_compatible"), bool):
                raise _unexpected("no verdict")
            messages = [visible(str(each)[:MESSAGE_CHARS_MAX]) for each in _rows(row.get("messages") or [])[:ROWS_MAX]]
            return SchemaVerdict(row["is_compatible"], messages)

        return await self._ask(ask)

    async def register(self, subject: str, kind: str, text: str) -> int:
        """Register a new version, and return its id."""
        path = f"/subjects/{quote(subject)}/versions"
        return await self._ask(lambda: _number(self.client.request("POST", path, _body(kind, text)), "id"))

    async def set_level(self, subject: str, level: str) -> None:
        """Set the level of compatibility of a subject. The subject "" stands for all that have none."""
        if level not in LEVELS:
            raise Failure(f"there is no level {level!r}", f"it is one of {', '.join(LEVELS)}", Kind.WRONG)
        path = f"/config/{quote(subject)}" if subject else "/config"
        await self._ask(lambda: self.client.request("PUT", path, {"compatibility": level}))

    async def _ask(self, ask: Callable[[], T]) -> T:
        async with self._turns:
            try:
                return await asyncio.to_thread(ask)
            except RegistryFailed as fault:
                kind = Kind.NOT_THERE if fault.code in NO_SUCH_SCHEMA else Kind.FAILED
                raise Failure(visible(fault.message[:NAME_CHARS_MAX]), None, kind) from None

    def _latest(self, subject: str) -> SchemaVersion:
        return _version(self.client.version(subject))

    def _view(self, subject: str, version: int | None) -> SubjectView:
        numbers = sorted(row for row in _rows(self.client.versions(subject)) if isinstance(row, int))
        shown = _version(self.client.version(subject, version or "latest"))
        text, cut = shown_text(shown)
        try:
            level, is_own = _level(self.client.get(f"/config/{quote(subject)}")), True
        except RegistryFailed as fault:
            if fault.code not in NOT_FOUND:
                raise
            level, is_own = _level(self.client.get("/config")), False
        return SubjectView(
            numbers[-VERSIONS_MAX:],
            shown,
            text,
            cut,
            record_name(shown.kind, shown.text),
            level,
            is_own,
            self._referring(shown),
        )

    def _referring(self, shown: SchemaVersion) -> list[tuple[str, int]]:
        path = f"/subjects/{quote(shown.subject)}/versions/{shown.version}/referencedby"
        numbers = [row for row in _rows(self.client.get(path) or []) if isinstance(row, int)]
        found: list[tuple[str, int]] = []
        ends_s = time.monotonic() + REFERRING_S_MAX
        for number in numbers[:REFERRING_MAX]:
            if time.monotonic() > ends_s:
                break
            rows = _rows(self.client.get(f"/schemas/ids/{number}/versions"))[:ROWS_MAX]
            found += ((_name(row, "subject"), _number(row, "version")) for row in rows)
        return sorted(set(found))


# -- What a registry has answered ----------------------------------------------------------------------------------------


def _version(row: Any) -> SchemaVersion:
    if not isinstance(row, dict) or not isinstance(row.get("schema"), str):
        raise _unexpected("no schema")
    references = tuple(
        (_name(each, "name"), _name(each, "subject"), _number(each, "version"))
        for each in _rows(row.get("references") or [])[:ROWS_MAX]
    )
    kind = str(row.get("schemaType") or AVRO)[:NAME_CHARS_MAX]
    return SchemaVersion(
        _name(row, "subject"), _number(row, "version"), _number(row, "id"), kind, row["schema"], references
    )


def _level(row: Any) -> str:
    level = row.get("compatibilityLevel") or row.get("compatibility") if isinstance(row, dict) else None
    if not isinstance(level, str):
        raise _unexpected("no level of compatibility")
    return level[:NAME_CHARS_MAX]


def _rows(answer: Any) -> list[Any]:
    if not isinstance(answer, list):
        raise _unexpected("no list")
    return answer


def _name(row: Any, name: str) -> str:
    found = row.get(name) if isinstance(row, dict) else None
    if not isinstance(found, str) or len(found) > NAME_CHARS_MAX:
        raise _unexpected(f"no {name}")
    return found


def _number(row: Any, name: str) -> int:
    found = row.get(name) if isinstance(row, dict) else None
    if not isinstance(found, int):
        raise _unexpected(f"no {name}")
    return found


def _body(kind: str, text: str) -> dict[str, Any]:
    if kind not in KINDS:
        raise Failure(f"there is no type {kind!r} of schemas", f"it is one of {', '.join(KINDS)}", Kind.WRONG)
    return {"schema": text} | ({} if kind == AVRO else {"schemaType": kind})


def _unexpected(what: str) -> RegistryFailed:
    return RegistryFailed(f"the registry's answer has {what}")
