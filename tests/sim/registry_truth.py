"""The truth of a registry's log, kept beside the tested code: each record is checked when it is appended, each response when it
arrives.

Of a record: an id means one schema for ever, also after its last version was deleted for good; a new id and a new version are the next
ones; a version keeps its schema; a new one is compatible by the level that counts at that offset; nothing that is referred to is deleted.
A write that was decided on a state without the last records, or by an instance that another one has followed, breaks one of these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.protocol.records.record import Record

FOR_EVER = float("inf")
Fields = Mapping[str, Any]


class RegistryBroken(AssertionError):
    """The registry has given a wrong response, or written a wrong record."""


class Kept(NamedTuple):
    """A version of a subject. `schema` is its JSON with sorted names, and the versions that it refers to."""

    id: int
    schema: str
    references: tuple[tuple[str, int], ...]
    deleted: bool


class Fact(NamedTuple):
    """The fact that a subject's version has an id and a schema."""

    subject: str
    version: int
    id: int
    schema: str


@dataclass
class Stay:
    """The times in virtual seconds in which a fact was in the log."""

    since: float
    until: float = FOR_EVER


def schema_of(text: str, references: Iterable[tuple[str, int]] = ()) -> str:
    return json.dumps([json.loads(text), sorted(references)], sort_keys=True)


def context_of(subject: str) -> str:
    return subject.rpartition(":")[0]


class Truth:
    """The log as a list of records. A cut removes its last records, and compaction removes none."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.problems: list[str] = []
        self.stays: dict[Fact, list[Stay]] = {}
        #: The time at which the log was last cut, or its topic created again.
        self.broken_s = -FOR_EVER
        self._events: list[tuple[int, bytes, bytes | None]] = []
        self._clear()

    def _clear(self) -> None:
        self.versions: dict[str, dict[int, Kept]] = {}
        self.levels: dict[str, str] = {}
        self.modes: dict[str, str] = {}
        #: All ids that were ever assigned, by their context.
        self.ids: dict[str, dict[int, str]] = {}
        #: The greatest id of each context, including those that only a NOOP has, as after a cut.
        self.greatest: dict[str, int] = {}

    @property
    def facts(self) -> set[Fact]:
        return {Fact(s, n, row.id, row.schema) for s, rows in self.versions.items() for n, row in rows.items()}

    # -- The log -----------------------------------------------------------------------------------------------------------

    def append(self, records: list[Record], is_blind: bool) -> None:
        """Take in a batch.

        `is_blind`: it was decided before a cut that has removed all batches of its producer. No registry can prevent that the
        log accepts it, and its client gets an error. It may follow lost records, but must not give an id another meaning.
        """
        before = {subject: dict(rows) for subject, rows in self.versions.items()}
        for record in records:
            assert record.key is not None
            key, row = json.loads(record.key), None if record.value is None else json.loads(record.value)
            if key["keytype"] == "SCHEMA" and row is not None:
                self._judge_id(key["subject"], _kept(row))
            if key["keytype"] == "SCHEMA" and not is_blind:
                self._judge(before, key["subject"], key["version"], row)
            self._events.append((record.offset, record.key, record.value))
            self._replay(record.key, record.value)
        self._note()

    def cut(self, offset: int) -> None:
        self._again([row for row in self._events if row[0] < offset])

    def recreate(self) -> None:
        self._again([])

    def _again(self, events: list[tuple[int, bytes, bytes | None]]) -> None:
        self._events, self.broken_s = events, self._now_s()
        self._clear()
        for _, key, value in events:
            self._replay(key, value)
        self._note()

    def _note(self) -> None:
        """Begin the intervals of new facts, and end those of lost ones."""
        facts, now_s = self.facts, self._now_s()
        for fact, stays in self.stays.items():
            if stays[-1].until == FOR_EVER and fact not in facts:
                stays[-1].until = now_s
        for fact in facts:
            stays = self.stays.setdefault(fact, [])
            if not stays or stays[-1].until != FOR_EVER:
                stays.append(Stay(now_s))

    def _replay(self, raw_key: bytes, raw: bytes | None) -> None:
        key, row = json.loads(raw_key), None if raw is None else json.loads(raw)
        subject = key.get("subject", "")
        match key["keytype"]:
            case "SCHEMA" if row is None:
                self.versions.get(subject, {}).pop(key["version"], None)
                if not self.versions.get(subject, True):
                    del self.versions[subject]
            case "SCHEMA":
                assert row is not None
                made = _kept(row)
                self.versions.setdefault(subject, {})[key["version"]] = made
                self.ids.setdefault(context_of(subject), {}).setdefault(made.id, made.schema)
                self._note_id(context_of(subject), made.id)
            case "NOOP" if row is not None:
                for context, number in row["greatestIds"].items():
                    self._note_id("" if context == "." else f":{context}", number)
            case "DELETE_SUBJECT" if row is not None:
                rows = self.versions.get(subject, {})
                rows |= {n: each._replace(deleted=True) for n, each in rows.items() if n <= row["version"]}
            case "CONFIG":
                _set(self.levels, subject, None if row is None else row.get("compatibilityLevel"))
            case "MODE":
                _set(self.modes, subject, None if row is None else row["mode"])

    def _note_id(self, context: str, number: int) -> None:
        self.greatest[context] = max(self.greatest.get(context, 0), number)

    # -- Records -----------------------------------------------------------------------------------------------------------

    def _judge_id(self, subject: str, made: Kept) -> None:
        ids = self.ids.get(context_of(subject), {})
        if ids.get(made.id, made.schema) != made.schema:
            self.problem(f"id {made.id} was {ids[made.id]}, and is {made.schema}")

    def _judge(self, before: dict[str, dict[int, Kept]], subject: str, number: int, row: dict[str, Any] | None) -> None:
        was = before.get(subject, {}).get(number)
        if row is None:
            if was is None or not was.deleted:
                self.problem(f"{subject} {number} is deleted for good, and was {was}")
            if users := self._referrers(subject, number):
                self.problem(f"{subject} {number} is deleted for good, and {users} refer to it")
            return
        made = _kept(row)
        if self.mode(subject) == "READONLY":
            self.problem(f"{subject} is read-only, and gets version {number}")
        if was is not None:
            if made != was._replace(deleted=made.deleted):
                self.problem(f"{subject} {number} was {was}, and is {made}")
            return
        if number != max(before.get(subject, {}), default=0) + 1:
            self.problem(f"{subject} has {sorted(before.get(subject, {}))}, and gets version {number}")
        ids = self.ids.get(context_of(subject), {})
        greatest = self.greatest.get(context_of(subject), 0)
        if made.id not in ids and made.id != greatest + 1:
            self.problem(f"id {made.id} follows {greatest}")
        if missing := [place for place in made.references if place[1] not in self.versions.get(place[0], {})]:
            self.problem(f"{subject} {number} refers to {missing}, which is not there")
            return
        self._judge_compatible(subject, number, made)

    def _judge_compatible(self, subject: str, number: int, made: Kept) -> None:
        level = self.levels.get(subject) or self.levels.get("") or "BACKWARD"
        direction, _, is_transitive = level.partition("_")
        earlier = [(n, row) for n, row in sorted(self.versions.get(subject, {}).items()) if not row.deleted]
        for n, row in earlier if is_transitive else earlier[-1:]:
            old, new = self._fields(row), self._fields(made)
            wrong = direction in ("BACKWARD", "FULL") and not reads(new, old)
            if wrong or (direction in ("FORWARD", "FULL") and not reads(old, new)):
                self.problem(f"{subject} {number} is not {level} with {n}: {made.schema}, {row.schema}")

    def _fields(self, row: Kept) -> Fields:
        """Return the fields of a record and whether each has a default; for a field that is a reference, the fields of its
        record.
        """
        found: dict[str, Any] = {}
        for field in json.loads(row.schema)[0]["fields"]:
            found[field["name"]] = "default" in field
            if row.references and field["type"] != "int":
                subject, number = row.references[0]
                referred = self.versions.get(subject, {}).get(number)
                found[field["name"]] = {} if referred is None else self._fields(referred)
        return found

    def _referrers(self, subject: str, number: int) -> list[tuple[str, int]]:
        return [
            (other, n)
            for other, rows in self.versions.items()
            for n, row in rows.items()
            if (subject, number) in row.references and other != subject
        ]

    def mode(self, subject: str) -> str:
        return self.modes.get(subject) or self.modes.get("") or "READWRITE"

    def problem(self, text: str) -> None:
        self.problems.append(f"at {self._now_s():.3f} s: {text}")

    # -- Answers -----------------------------------------------------------------------------------------------------------

    def was(self, fact: Fact, since: float, until: float) -> bool:
        """Return whether the log had the fact at some moment of this time."""
        return any(stay.since <= until and stay.until >= since for stay in self.stays.get(fact, ()))

    def has_had(self, fact: Fact, since: float) -> bool:
        """Return whether the log has the fact now, and has had it since then."""
        return any(stay.since <= since and stay.until == FOR_EVER for stay in self.stays.get(fact, ()))

    def meanings(self, context: str, schema_id: int, until: float) -> set[str]:
        """Return the schemas that an id has had up to a moment."""
        return {
            fact.schema
            for fact, stays in self.stays.items()
            if fact.id == schema_id and context_of(fact.subject) == context and stays[0].since <= until
        }


def reads(reader: Fields, writer: Fields) -> bool:
    """Return whether a reader of records finds each field that it needs, by Avro's rule for fields of one type."""
    for name, wanted in reader.items():
        if name not in writer:
            if wanted is not True:
                return False
        elif isinstance(wanted, dict) and not reads(wanted, writer[name]):
            return False
    return True


def _kept(row: Mapping[str, Any]) -> Kept:
    references = tuple((each["subject"], each["version"]) for each in row.get("references", ()))
    return Kept(row["id"], schema_of(row["schema"], references), references, row["deleted"])


def _set(table: dict[str, str], name: str, value: str | None) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value
