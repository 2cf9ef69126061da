"""The leader's decisions on requests are functions of the state and the request. They return records and change nothing.

They run when the state has all records of the topic. The leader awaits nothing between a decision and its append.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.registry import contracts, schema_records
from ottla.registry.client import AVRO, JSON_SCHEMA, PROTOBUF, Reference
from ottla.registry.errors import RegistryError
from ottla.registry.numbers import INT32_MAX, LATEST, int32, version_of
from ottla.registry.registry_state import DEFAULT_MODE, RegistryState
from ottla.registry.schema_records import Record, Version
from ottla.registry.subjects import DEFAULT_CONTEXT, GLOBAL, context_of

KINDS = (JSON_SCHEMA, PROTOBUF, AVRO)
LEVELS = ("NONE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE")
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")
READ_ONLY = ("READONLY", "READONLY_OVERRIDE")
IMPORTING = ("IMPORT", "FORWARD")
#: The id of a request that names none.
NO_ID = -1
REFERENCES_MAX = 1_000
#: The fields in the body of PUT /config: the name in the request, and the name in the record and the response.
CONFIG_FIELDS = {
    "compatibility": "compatibilityLevel",
    **{
        name: name
        for name in (
            "alias", "normalize", "validateFields", "validateRules", "compatibilityPolicy", "compatibilityGroup",
            "defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet",
        )
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """A schema in a request: a registration, a lookup or a check. With `version` 0 or `id` -1 the request names none."""

    text: str
    kind: str
    references: tuple[Reference, ...]
    version: int = 0
    id: int = -1
    metadata: Mapping[str, Any] | None = None
    rules: Mapping[str, Any] | None = None

    #: The digest, computed as that of `schema_records.Version`.
    md5: bytes = field(init=False, compare=False)

    def __post_init__(self) -> None:
        made = schema_records.fingerprint(self.text, self.references, self.metadata, self.rules)
        object.__setattr__(self, "md5", made)


def asked_from(body: object, *, is_new: bool = False) -> Asked:
    """Return the schema in a request's JSON.

    A registration may leave out the text: then the version gets the text of the one before.

    Raises:
        RegistryError: the JSON is no schema.
    """
    if not isinstance(body, dict):
        raise RegistryError("body", "it is no object")
    text, kind = body.get("schema"), body.get("schemaType") or AVRO
    if is_new and text is None:
        text = ""
    if not isinstance(text, str) or not (text or is_new):
        raise RegistryError("invalid_schema", "Empty schema")
    if kind not in KINDS:
        raise RegistryError("invalid_schema", f"Invalid schema type {kind}")
    references, schema_id, version = _references(body), _number(body, "id"), _number(body, "version")
    if schema_id is None or schema_id < NO_ID:
        raise RegistryError("invalid_schema", f"The specified id is not a number between 1 and {INT32_MAX}")
    if version is None or version < LATEST:
        raise RegistryError("invalid_version", str(body["version"])[:100])
    made = Asked(text, kind, references, max(version, 0), schema_id)
    metadata, rules = contracts.metadata_of(body.get("metadata")), contracts.rules_of(body.get("ruleSet"))
    return replace(made, metadata=metadata, rules=rules)


def _number(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    return NO_ID if value is None else int32(value)


def _references(body: Mapping[str, Any]) -> tuple[Reference, ...]:
    wrong = RegistryError("invalid_schema", "Invalid references: each needs a name, a subject and a version")
    given = body.get("references") or ()
    if not isinstance(given, list | tuple) or not all(isinstance(row, dict) for row in given):
        raise wrong
    if len(given) > REFERENCES_MAX:
        raise RegistryError("invalid_schema", f"a schema has at most {REFERENCES_MAX} references")
    made = []
    for row in given:
        name, subject, version = row.get("name"), row.get("subject"), row.get("version")
        if not (isinstance(name, str) and isinstance(subject, str)) or version is None:
            raise wrong
        if isinstance(version, bool | dict | list) or (isinstance(version, str) and version != "latest"):
            version = int32(version)
            if version is None:
                raise wrong
        made.append(Reference(name, subject, version_of(version)))
    return tuple(made)


# -- Registering ---------------------------------------------------------------------------------------------------------


def check_writable(state: RegistryState, subject: str) -> None:
    if state.mode(subject) in READ_ONLY:
        place = f"Subject {subject or None} in context {context_of(subject)}"
        raise RegistryError("not_permitted", f"{place} is in read-only mode")


def check_mode(state: RegistryState, subject: str, asked: Asked) -> None:
    """Check that the mode of the subject allows a registration. One with an id is allowed only in an import mode.

    Raises:
        RegistryError: the mode does not allow it.
    """
    check_writable(state, subject)
    place = f"Subject {subject} in context {context_of(subject)}"
    if asked.id >= 0 and state.mode(subject) not in IMPORTING:
        raise RegistryError("not_permitted", f"{place} is not in import mode")
    if asked.id == 0:
        raise RegistryError("invalid_schema", f"The specified id is not a number between 1 and {INT32_MAX}")
    if asked.id < 0 and state.mode(subject) != "READWRITE":
        raise RegistryError("not_permitted", f"{place} is not in read-write mode")


def populated(state: RegistryState, subject: str, asked: Asked) -> Asked:
    """Return a schema with the metadata and rules that it gets as a new version, as in Confluent's registry.

    They are the request's, or those of the version before. The subject's configuration has defaults for them, and overrides. A
    request without a text gets the text of the version before.

    Raises:
        RegistryError: there is no text, and no version before.
    """
    versions = state.versions(subject)
    before = versions[-1] if versions else None
    if not asked.text:
        if before is None:
            raise RegistryError("invalid_schema", "Empty schema")
        asked = replace(asked, text=before.text, kind=before.kind, references=before.references)
    metadata, rules = asked.metadata, asked.rules
    if before is not None:
        metadata = before.metadata if metadata is None else metadata
        rules = before.rules if rules is None else rules

    def setting(name: str) -> Any:
        return state.setting(subject, name)

    return replace(
        asked,
        metadata=contracts.merged_metadata(setting("defaultMetadata"), metadata, setting("overrideMetadata")),
        rules=contracts.merged_rules(setting("defaultRuleSet"), rules, setting("overrideRuleSet")),
    )


def numbered(state: RegistryState, subject: str, asked: Asked) -> Asked:
    """Return a schema whose metadata names a version, with that version: the one that has the schema already, or a new one."""
    if contracts.version_in(asked.metadata) is None:
        return asked

    def with_number(number: int | str) -> Asked:
        return replace(asked, metadata=contracts.with_version(asked.metadata, number))

    for version in reversed(state.versions(subject)):
        number = contracts.version_in(version.metadata)
        if number is not None and version.md5 == with_number(number).md5:
            return with_number(number)
    every = state.versions(subject, deleted=True)
    return with_number(every[-1].version + 1 if every else 1)


def find(state: RegistryState, subject: str, asked: Asked, *, deleted: bool = False) -> Version | None:
    """Return the version of the subject that has this schema. If there are several, return the latest."""
    for version in reversed(state.versions(subject, deleted=deleted)):
        if version.kind == asked.kind and version.md5 == asked.md5 and asked.id in (-1, version.id):
            return version
    return None


def register(state: RegistryState, subject: str, asked: Asked) -> tuple[Version, list[Record]]:
    """Return the version of a schema, whose text is canonical already, and the records that create it; no records if it exists.

    Raises:
        RegistryError: the id or the version already belongs to another schema.
    """
    check_mode(state, subject, asked)
    if asked.version == 0 and (found := find(state, subject, asked)) is not None:
        return found, []
    context = context_of(subject)
    importing = state.mode(subject) in IMPORTING
    known = state.id_of(context, asked.md5)
    all_versions = state.versions(subject, deleted=True)
    next_version = all_versions[-1].version + 1 if all_versions else 1
    if max(asked.version, 0) == 0 and next_version > INT32_MAX:
        raise RegistryError("not_permitted", f"Subject {subject} has the version {INT32_MAX}, and no number is left")
    if asked.version > 0 and asked.version != next_version and not importing:
        raise RegistryError("invalid_schema", "Version is not one more than previous version")
    schema_id = asked.id if asked.id >= 0 else known if known is not None else _next_id(state, context)
    holder = state.by_id(schema_id, context)
    if holder is not None and holder.md5 != asked.md5:
        raise RegistryError("not_permitted", f"Overwrite new schema with id {schema_id} is not permitted.")
    made = Version(
        subject,
        max(asked.version, 0) or next_version,
        schema_id,
        asked.text,
        asked.kind,
        asked.references,
        asked.metadata,
        asked.rules,
    )
    rows = [] if context == DEFAULT_CONTEXT or context in state.contexts else [schema_records.context_record(context)]
    # A softly deleted version of the same schema is replaced, unless others refer to it.
    rows += [
        schema_records.deleted_for_good(old)
        for old in all_versions
        if old.deleted and old.id == schema_id and old.version < made.version
        if not state.referrers(subject, old.version, deleted=True)
    ]
    return made, [*rows, schema_records.schema_record(made)]


def _next_id(state: RegistryState, context: str) -> int:
    if state.id_max(context) >= INT32_MAX:
        text = f"Context {context} has had the schema id {INT32_MAX}, and no id is left: one was imported with it"
        raise RegistryError("not_permitted", text)
    return state.id_max(context) + 1


# -- Deleting ------------------------------------------------------------------------------------------------------------


def delete_version(state: RegistryState, subject: str, number: int, *, permanent: bool) -> tuple[int, list[Record]]:
    """Return the number of the deleted version, and the record."""
    version = state.version(subject, number, deleted=number != LATEST)  # the latest version is never a deleted one
    if version is None:
        raise (
            RegistryError("version", number)
            if state.versions(subject, deleted=True)
            else RegistryError("subject", subject)
        )
    if version.deleted and not permanent:
        raise RegistryError("version_soft_deleted", subject, version.version)
    check_writable(state, subject)
    if permanent and not version.deleted:
        raise RegistryError("version_not_soft_deleted", subject, version.version)
    _check_referrers(state, version, deleted=permanent)
    return version.version, _for_good(state, [version]) if permanent else [schema_records.deleted_softly(version)]


def delete_subject(state: RegistryState, subject: str, *, permanent: bool) -> tuple[list[int], list[Record]]:
    """Return the numbers of the deleted versions, and the records."""
    check_writable(state, subject)
    rows, live = state.versions(subject, deleted=True), state.versions(subject)
    if not rows:
        raise RegistryError("subject", subject)
    if not permanent and not live:
        raise RegistryError("subject_soft_deleted", subject)
    if permanent and live:
        raise RegistryError("subject_not_soft_deleted", subject)
    for version in rows if permanent else live:
        _check_referrers(state, version, deleted=permanent, besides=subject)
    if not permanent:
        mark = {"version": live[-1].version}
        return [row.version for row in live], [schema_records.subject_record("DELETE_SUBJECT", subject, mark)]
    made = _for_good(state, reversed(rows))
    made += [schema_records.subject_record("MODE", subject, None)] if subject in state.modes else []
    made += [schema_records.subject_record("CONFIG", subject, None)] if subject in state.configs else []
    return [row.version for row in rows], made


def _for_good(state: RegistryState, versions: Iterable[Version]) -> list[Record]:
    """Return the records that delete versions permanently.

    Before them is a record of the ids in use, which must not be given out again.
    """
    made = list(map(schema_records.deleted_for_good, versions))
    return [schema_records.noop_record(state.greatest_ids()), *made] if made else []


def _check_referrers(state: RegistryState, version: Version, *, deleted: bool, besides: str | None = None) -> None:
    rows = state.referrers(version.subject, version.version, deleted=deleted)
    if any(row.subject != besides for row in rows):
        name = f"{{magic=1,keytype=SCHEMA,subject={version.subject},version={version.version}}}"
        raise RegistryError("referenced", name)


# -- Configurations and modes --------------------------------------------------------------------------------------------


def set_config(state: RegistryState, subject: str, body: object) -> tuple[dict[str, Any], list[Record]]:
    """Return the part of the configuration in the request, as the response has it, and the record."""
    if not isinstance(body, dict):
        raise RegistryError("body", "it is no object")
    check_writable(state, subject)
    changed = {name: body[name] for name in CONFIG_FIELDS if name in body}
    if not isinstance(changed.get("alias"), str | None):
        raise RegistryError("body", "alias is no text")
    if changed.get("validateFields"):
        raise RegistryError("not_permitted", "validateFields is not there: nothing would look at reserved fields")
    for name in ("defaultMetadata", "overrideMetadata"):
        contracts.metadata_of(changed.get(name))
    for name in ("defaultRuleSet", "overrideRuleSet"):
        contracts.rules_of(changed.get(name))
    level = changed.get("compatibility")
    if level is not None:
        changed["compatibility"] = level.upper() if isinstance(level, str) else ""
        if changed["compatibility"] not in LEVELS:
            raise RegistryError("invalid_level")
    value = {**state.configs.get(subject, {}), **{CONFIG_FIELDS[name]: part for name, part in changed.items()}}
    kept = {name: part for name, part in value.items() if part is not None}
    return changed, [schema_records.subject_record("CONFIG", subject, kept)]


def delete_config(state: RegistryState, subject: str) -> tuple[dict[str, Any], list[Record]]:
    check_writable(state, subject)
    old = state.configs.get(subject)
    if old is None and subject != GLOBAL:
        raise RegistryError("config", subject)
    return old or {}, [schema_records.subject_record("CONFIG", subject, None)]


def set_mode(state: RegistryState, subject: str, body: object, *, force: bool) -> tuple[dict[str, str], list[Record]]:
    mode = body.get("mode") if isinstance(body, dict) else None
    if not isinstance(mode, str) or mode.upper() not in MODES:
        raise RegistryError("invalid_mode")
    mode = mode.upper()
    rows: list[Record] = []
    if mode == "IMPORT" and state.mode(subject) != "IMPORT" and not force:
        concerned: Sequence[str] = [subject] if subject != GLOBAL else state.subjects(deleted=True)
        if any(state.versions(each) for each in concerned):
            raise RegistryError("not_permitted", "Cannot import since found existing subjects")
        versions = [version for each in concerned for version in state.versions(each, deleted=True)]
        for version in versions:
            _check_referrers(state, version, deleted=True, besides=version.subject)
        rows = _for_good(state, versions)
    return {"mode": mode}, [*rows, schema_records.subject_record("MODE", subject, {"mode": mode})]


def delete_mode(state: RegistryState, subject: str) -> tuple[dict[str, str], list[Record]]:
    """Return the mode that was set (READWRITE if the one for all subjects was not set), and the record."""
    if subject not in state.modes and subject != GLOBAL:
        raise RegistryError("mode", subject)
    return {"mode": state.modes.get(subject, DEFAULT_MODE)}, [schema_records.subject_record("MODE", subject, None)]
