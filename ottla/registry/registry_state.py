"""The registry's state: the records of the topic, replayed in their order. Nothing else changes it.

Nothing else writes it. The same replay runs at the start, in an instance that follows, and in the leader after its own writes.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

from ottla.registry.numbers import LATEST
from ottla.registry.schema_records import Version, guid_of, positive, version_from
from ottla.registry.subjects import DEFAULT_CONTEXT, GLOBAL, context_of, has_prefix, in_same_context, normal, scopes

logger = logging.getLogger(__name__)

DEFAULT_MODE = "READWRITE"


class RegistryState:
    """Subjects and their versions, configurations, modes and contexts."""

    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, Version]] = {}
        self._places: dict[tuple[str, int], dict[tuple[str, int], None]] = {}
        self._ids: dict[tuple[str, bytes], int] = {}
        self._referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self._guids: dict[str, dict[tuple[str, int], None]] = {}
        self._id_max: dict[str, int] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.modes: dict[str, str] = {}
        self.contexts: dict[str, None] = {DEFAULT_CONTEXT: None}
        self.unreadable = 0

    # -- Replay --------------------------------------------------------------------------------------------------------

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Replay a record. One that cannot be parsed is counted and skipped, as in Confluent's registry."""
        try:
            named = json.loads(key or b"")
            row = None if value is None else json.loads(value)
            self._replay(named["keytype"], named, row)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as fault:
            self.unreadable += 1
            logger.warning("a record of the schemas' topic cannot be read: key %.200r: %.200s", key, fault)

    def _replay(self, keytype: str, key: dict[str, Any], row: dict[str, Any] | None) -> None:
        subject = key.get("subject") or GLOBAL
        match keytype:
            case "SCHEMA" if row is None:
                self._remove(subject, key["version"])
            case "SCHEMA":
                assert row is not None
                self._put(version_from(row))
            case "CONFIG":
                _set(self.configs, subject, None if row is None else {k: v for k, v in row.items() if k != "subject"})
            case "MODE":
                _set(self.modes, subject, None if row is None else row["mode"])
            case "DELETE_SUBJECT" if row is not None:
                for version in list(self._subjects.get(subject, {}).values()):
                    if version.version <= row["version"] and not version.deleted:
                        self._put(replace(version, deleted=True))
            case "CLEAR_SUBJECT":
                for number in list(self._subjects.get(subject, {})):
                    self._remove(subject, number)
            case "CONTEXT" if row is not None:
                self.contexts[row["context"]] = None
            case "NOOP" if row is not None:
                for context, number in row["greatestIds"].items():
                    self._note_id(context, positive(number, 1))

    def _put(self, version: Version) -> None:
        self._remove(version.subject, version.version)
        context, place = context_of(version.subject), (version.subject, version.version)
        versions = self._subjects.setdefault(version.subject, {})
        versions[version.version] = version
        if len(versions) > 1 and next(reversed(versions)) != max(versions):
            self._subjects[version.subject] = dict(sorted(versions.items()))
        self._places.setdefault((context, version.id), {})[place] = None
        self._ids.setdefault((context, version.md5), version.id)
        self._guids.setdefault(guid_of(version), {})[context, version.id] = None
        self._note_id(context, version.id)
        self.contexts.setdefault(context)
        for target in self._targets(version):
            self._referrers.setdefault(target, set()).add(place)

    def _note_id(self, context: str, number: int) -> None:
        self._id_max[context] = max(self._id_max.get(context, 0), number)

    def _remove(self, subject: str, number: int) -> None:
        version = self._subjects.get(subject, {}).pop(number, None)
        if version is None:
            return
        if not self._subjects[subject]:
            del self._subjects[subject]
        context, place = context_of(subject), (subject, number)
        places = self._places[context, version.id]
        places.pop(place, None)
        if not places:
            del self._places[context, version.id]
            self._ids.pop((context, version.md5), None)
            guids = self._guids[guid_of(version)]
            guids.pop((context, version.id), None)
            if not guids:
                del self._guids[guid_of(version)]
        for target in self._targets(version):
            self._referrers.get(target, set()).discard(place)

    @staticmethod
    def _targets(version: Version) -> list[tuple[str, int]]:
        return [(in_same_context(row.subject, version.subject), row.version) for row in version.references]

    # -- Questions -----------------------------------------------------------------------------------------------------

    def subjects(self, prefix: str = ":*:", *, deleted: bool = False, only_deleted: bool = False) -> list[str]:
        found = []
        for subject, versions in sorted(self._subjects.items()):
            live = any(not version.deleted for version in versions.values())
            if (not live if only_deleted else live or deleted) and has_prefix(subject, prefix):
                found.append(subject)
        return found

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Return the versions of a subject from the first to the last, the softly deleted ones only on request."""
        return [row for row in self._subjects.get(subject, {}).values() if deleted or not row.deleted]

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version | None:
        """Return a version of a subject; the latest for -1."""
        if number == LATEST:
            rows = self.versions(subject, deleted=deleted)
            return rows[-1] if rows else None
        found = self._subjects.get(subject, {}).get(number)
        return found if found is not None and (deleted or not found.deleted) else None

    def by_id(self, schema_id: int, context: str) -> Version | None:
        """Return a version with the id, also a softly deleted one: values that were written with it must stay readable."""
        places = self._places.get((context, schema_id))
        if not places:
            return None
        subject, number = next(iter(places))
        return self._subjects[subject][number]

    def by_id_anywhere(self, schema_id: int, subject: str) -> Version | None:
        """Return the schema of an id for clients: in the context of `subject`, which may be empty, or in any context where a
        subject of that name has the id.
        """
        found = self.by_id(schema_id, context_of(subject))
        if found is not None or not subject or context_of(subject) != DEFAULT_CONTEXT:
            return found
        for context in self.contexts:
            rows = [place for place in self._places.get((context, schema_id), ()) if place[0].endswith(f":{subject}")]
            if rows:
                return self._subjects[rows[0][0]][rows[0][1]]
        return None

    def places(self, schema_id: int, context: str, *, deleted: bool = False) -> list[Version]:
        """Return all versions that have the id."""
        rows = [self._subjects[subject][number] for subject, number in self._places.get((context, schema_id), ())]
        return [row for row in rows if deleted or not row.deleted]

    def ids_of_guid(self, guid: str) -> list[tuple[str, int]]:
        return list(self._guids.get(guid, ()))

    def id_of(self, context: str, md5: bytes) -> int | None:
        return self._ids.get((context, md5))

    def id_max(self, context: str) -> int:
        return self._id_max.get(context, 0)

    def greatest_ids(self) -> dict[str, int]:
        """Return the greatest id that each context has had."""
        return dict(sorted(self._id_max.items()))

    def referrers(self, subject: str, number: int, *, deleted: bool = False) -> list[Version]:
        """Return the versions that refer to a version."""
        # A reference that an earlier release has stored without a number may mean any version.
        places = self._referrers.get((subject, number), set()) | self._referrers.get((subject, LATEST), set())
        rows = [self._subjects[place[0]][place[1]] for place in sorted(places)]
        return [row for row in rows if deleted or not row.deleted]

    def alias_of(self, subject: str) -> str:
        """Return the subject that a name stands for: the `alias` in its own configuration, or the name itself."""
        alias = self.configs.get(subject, {}).get("alias") if subject else None
        return normal(in_same_context(alias, subject)) if alias and isinstance(alias, str) else subject

    def mode(self, subject: str) -> str:
        return next((self.modes[place] for place in scopes(subject) if place in self.modes), DEFAULT_MODE)

    def setting(self, subject: str, name: str) -> Any:
        """Return the configuration of a subject, of its context or of all; None if none of them has one."""
        for place in scopes(subject):
            value = self.configs.get(place, {}).get(name)
            if value is not None:
                return value
        return None


def _set(table: dict[str, Any], subject: str, value: Any) -> None:
    if value is None:
        table.pop(subject, None)
    else:
        table[subject] = value
