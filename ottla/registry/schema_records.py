"""Records of the topic `_schemas`, byte for byte as Confluent's registry writes them: JSON keys with a key type and a magic
number.

SCHEMA          subject, version             the schema of a version; null after it was deleted for good
CONFIG, MODE    subject, or none: global     null: the subject has none
DELETE_SUBJECT  subject                      all versions up to this one are deleted softly
CLEAR_SUBJECT   subject                      all versions are forgotten, before the mode becomes IMPORT
CONTEXT         tenant, context              the context exists
NOOP                                         the writer finds the end of the log by it; its value has the greatest id of each
                                             context, because compaction removes the ids of permanently deleted schemas. Other
                                             registries ignore the value
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.registry.client import AVRO, Reference, references_of
from ottla.registry.numbers import INT32_MAX, int32

TENANT = "default"
Record = tuple[bytes, bytes | None]
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a subject. `metadata` and `rules` are the client's JSON, which the registry keeps and returns."""

    subject: str
    version: int
    id: int
    text: str
    kind: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: Json | None = None
    rules: Json | None = None
    deleted: bool = False
    #: The identity of the schema. It is computed once, because a lookup compares it with all versions of a subject.
    md5: bytes = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "md5", fingerprint(self.text, self.references, self.metadata, self.rules))


def fingerprint(text: str, references: tuple[Reference, ...], metadata: Json | None, rules: Json | None) -> bytes:
    """Return the MD5 that identifies a schema, in any subject. Confluent's GUID is the same 16 bytes.

    For schemas with metadata or rules, which are few, the bytes differ from Confluent's.
    """
    made = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    for row in references:
        names = (row.name + row.subject).encode("utf-8", "surrogatepass")
        made.update(names + row.version.to_bytes(4, "big", signed=True))
    for part in (metadata, rules):
        if part is not None:
            made.update(b"\1" + json.dumps(part, sort_keys=True).encode())
    return made.digest()


def guid_of(version: Version) -> str:
    return str(uuid.UUID(bytes=version.md5))


# -- Writing -------------------------------------------------------------------------------------------------------------


def dump(row: Json) -> bytes:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def schema_key(subject: str, version: int) -> bytes:
    return dump({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def schema_record(version: Version) -> Record:
    row: dict[str, Any] = {"subject": version.subject, "version": version.version, "id": version.id}
    row["md5"] = base64.b64encode(version.md5).decode()
    row |= _described(version)
    return schema_key(version.subject, version.version), dump(
        row | {"schema": version.text, "deleted": version.deleted}
    )


def deleted_softly(version: Version) -> Record:
    return schema_record(replace(version, deleted=True))


def deleted_for_good(version: Version) -> Record:
    return schema_key(version.subject, version.version), None


def subject_record(keytype: str, subject: str, value: Json | None) -> Record:
    """Return a record of CONFIG, MODE, DELETE_SUBJECT or CLEAR_SUBJECT. The global ones have no subject."""
    named = {"subject": subject} if subject else {}
    key = dump({"keytype": keytype, **named, "magic": 0})
    return key, None if value is None else dump({**named, **value})


def context_record(context: str) -> Record:
    place = {"tenant": TENANT, "context": context}
    return dump({"keytype": "CONTEXT", **place, "magic": 0}), dump(place)


def noop_record(greatest_ids: Mapping[str, int] | None = None) -> Record:
    """Return a NOOP. `greatest_ids` has the greatest id by context."""
    return dump({"keytype": "NOOP", "magic": 0}), dump({"greatestIds": greatest_ids}) if greatest_ids else None


def _described(version: Version) -> dict[str, Any]:
    row: dict[str, Any] = {}
    if version.kind != AVRO:
        row["schemaType"] = version.kind
    if version.references:
        row["references"] = [{"name": r.name, "subject": r.subject, "version": r.version} for r in version.references]
    if version.metadata is not None:
        row["metadata"] = version.metadata
    if version.rules is not None:
        row["ruleSet"] = version.rules
    return row


def answer_of(version: Version) -> dict[str, Any]:
    """Return the JSON of a version for the REST API."""
    row: dict[str, Any] = {"subject": version.subject, "version": version.version, "id": version.id}
    row |= {"guid": guid_of(version)} | _described(version) | {"schema": version.text}
    return row | {"deleted": True} if version.deleted else row


# -- Reading -------------------------------------------------------------------------------------------------------------


def version_from(row: Json) -> Version:
    """Return the version in a SCHEMA record's value.

    Raises:
        KeyError, TypeError, ValueError: it is no such value. Its id and version must be positive int32 numbers: otherwise no
            client can use them, Confluent's registry cannot read the record, and the ids after it would be as useless.
    """
    return Version(
        row["subject"],
        positive(row["version"], 1, "version"),
        positive(row["id"], 0),
        row["schema"],
        row.get("schemaType") or AVRO,
        references_of(dict(row)),
        row.get("metadata"),
        row.get("ruleSet"),
        bool(row.get("deleted")),
    )


def positive(value: object, least: int, name: str = "id") -> int:
    """Return an id or a version in a record.

    Raises:
        ValueError: the value is no int32, or less than `least`.
    """
    number = int32(value)
    if number is None or number < least:
        raise ValueError(f"its {name} is no number between 1 and {INT32_MAX}")
    return number
