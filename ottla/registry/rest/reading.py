"""Reads: subjects, versions, schemas by id and GUID, configurations, modes, contexts."""

from __future__ import annotations

from typing import Any

from ottla import __version__
from ottla.registry.decisions import KINDS
from ottla.registry.errors import RegistryError
from ottla.registry.numbers import int32, version_of
from ottla.registry.rest.request import RestCall
from ottla.registry.schema_records import Version, answer_of, guid_of
from ottla.registry.subjects import DEFAULT_CONTEXT, GLOBAL, context_of

CLUSTER_ID = "schema-registry"


async def root(call: RestCall) -> Any:
    return {}


async def types(call: RestCall) -> Any:
    return list(KINDS)


async def contexts(call: RestCall) -> Any:
    readable = {context_of(each) for each in call.state.subjects(deleted=True) if call.may_read(each)}
    return call.page(
        sorted(
            each
            for each in call.state.contexts
            if each == DEFAULT_CONTEXT or each in readable or call.may_read(f":{each}:")
        )
    )


async def server_id(call: RestCall) -> Any:
    clusters = {"kafka-cluster": call.registry.log.cluster_id, "schema-registry-cluster": CLUSTER_ID}
    return {"scope": {"path": [], "clusters": clusters}, "id": ""}


async def server_version(call: RestCall) -> Any:
    return {"version": f"ottla-{__version__}", "commitId": ""}


# -- Subjects and versions -----------------------------------------------------------------------------------------------


async def subjects(call: RestCall) -> Any:
    found = call.state.subjects(
        call.text("subjectPrefix", ":*:"), deleted=call.flag("deleted"), only_deleted=call.flag("deletedOnly")
    )
    return call.page([subject for subject in found if call.may_read(subject)])


async def versions(call: RestCall) -> Any:
    call.require("read")
    only = call.flag("deletedOnly")
    rows = call.state.versions(call.subject, deleted=only or call.flag("deleted") or call.flag("deletedAsNegative"))
    if not rows:
        raise RegistryError("subject", call.subject)
    if call.flag("deletedAsNegative"):
        return call.page([-row.version if row.deleted else row.version for row in rows])
    return call.page([row.version for row in rows if row.deleted or not only])


async def version(call: RestCall) -> Any:
    found = _version(call)
    return answer_of(found) | {"schema": await call.registry.formatted(call.who, found, call.text("format"))}


async def version_text(call: RestCall) -> Any:
    return await call.registry.formatted(call.who, _version(call), call.text("format"))


async def referenced_by(call: RestCall) -> Any:
    found = _version(call)
    rows = call.state.referrers(found.subject, found.version, deleted=call.flag("deleted"))
    return call.page(sorted({row.id for row in rows if call.may_read(row.subject)}))


async def latest_with_metadata(call: RestCall) -> Any:
    """Respond with the latest version that has all the properties of `?key=` and `?value=`."""
    call.require("read")
    query = call.request.query_params
    wanted = dict(zip(query.getlist("key"), query.getlist("value"), strict=False))
    rows = call.state.versions(call.subject, deleted=call.flag("deleted"))
    if not rows:
        raise RegistryError("subject", call.subject)
    for row in reversed(rows):
        properties = (row.metadata or {}).get("properties") or {}
        if all(properties.get(name) == value for name, value in wanted.items()):
            return answer_of(row) | {"schema": await call.registry.formatted(call.who, row, call.text("format"))}
    raise RegistryError("schema")


def _version(call: RestCall) -> Version:
    call.require("read")
    number = version_of(call.parameters["version"])
    deleted = call.flag("deleted")
    found = call.state.version(call.subject, number, deleted=deleted)
    if found is None:
        if not call.state.versions(call.subject, deleted=deleted):
            raise RegistryError("subject", call.subject)
        raise RegistryError("version", number)
    return found


# -- Schemas -------------------------------------------------------------------------------------------------------------


async def schemas(call: RestCall) -> Any:
    latest = call.flag("latestOnly")
    rows: list[Version] = []
    for subject in call.state.subjects(call.text("subjectPrefix", ":*:"), deleted=call.flag("deleted")):
        if call.may_read(subject):
            found = call.state.versions(subject, deleted=call.flag("deleted"))
            rows += found[-1:] if latest else found
    return [answer_of(row) for row in call.page(rows)]


async def schema(call: RestCall) -> Any:
    found = _by_id(call)
    answer = _schema_answer(found, await call.registry.formatted(call.who, found, call.text("format")))
    return answer | ({"maxId": call.state.id_max(call.context())} if call.flag("fetchMaxId") else {})


async def schema_text(call: RestCall) -> Any:
    return await call.registry.formatted(call.who, _by_id(call), call.text("format"))


async def schema_subjects(call: RestCall) -> Any:
    return call.page(list(dict.fromkeys(row.subject for row in _places(call))))


async def schema_versions(call: RestCall) -> Any:
    return call.page([{"subject": row.subject, "version": row.version} for row in _places(call)])


async def schema_of_guid(call: RestCall) -> Any:
    guid = call.parameters["guid"].lower()
    for context, schema_id in call.state.ids_of_guid(guid):
        found = _readable(call, context, schema_id)
        if found is not None:
            return _schema_answer(found, await call.registry.formatted(call.who, found, call.text("format")))
    raise RegistryError("schema_id", guid)


async def ids_of_guid(call: RestCall) -> Any:
    rows = call.state.ids_of_guid(call.parameters["guid"].lower())
    return [{"context": context, "id": number} for context, number in rows if _readable(call, context, number)]


def _id(call: RestCall) -> int:
    number = int32(call.parameters["id"])
    if number is None:
        raise RegistryError("no_such_path")
    return number


def _by_id(call: RestCall) -> Version:
    """Return a version with the id that the user may read, because the response names its subject."""
    schema_id = _id(call)
    found = call.state.by_id_anywhere(schema_id, call.state.alias_of(call.text("subject")))
    readable = None if found is None else _readable(call, context_of(found.subject), schema_id)
    if readable is None:
        raise RegistryError("schema_id", schema_id)
    return readable


def _readable(call: RestCall, context: str, schema_id: int) -> Version | None:
    rows = call.state.places(schema_id, context, deleted=True)
    return next((row for row in rows if call.may_read(row.subject)), None)


def _places(call: RestCall) -> list[Version]:
    schema_id = _id(call)
    rows = call.state.places(schema_id, call.context(), deleted=True)
    rows = [row for row in rows if call.may_read(row.subject)]
    if not rows:
        raise RegistryError("schema")
    return [row for row in rows if call.flag("deleted") or not row.deleted]


def _schema_answer(version: Version, text: str) -> dict[str, Any]:
    answer = answer_of(version)
    kept: dict[str, Any] = {
        name: answer[name] for name in ("schemaType", "references", "metadata", "ruleSet") if name in answer
    }
    return {"subject": version.subject, "version": version.version, "guid": guid_of(version)} | kept | {"schema": text}


# -- Configurations and modes --------------------------------------------------------------------------------------------


async def config(call: RestCall) -> Any:
    call.require("read")
    found = call.state.configs.get(call.subject)
    if found is None and call.subject != GLOBAL and not call.flag("defaultToGlobal"):
        raise RegistryError("config", call.subject)
    level = (found or {}).get("compatibilityLevel")
    if level is None and (call.subject == GLOBAL or call.flag("defaultToGlobal")):
        level = call.state.setting(call.subject, "compatibilityLevel") or call.registry.default_level
    return {**(found or {}), **({} if level is None else {"compatibilityLevel": level})}


async def mode(call: RestCall) -> Any:
    call.require("read")
    found = call.state.modes.get(call.subject)
    if found is None:
        if call.subject != GLOBAL and not call.flag("defaultToGlobal"):
            raise RegistryError("mode", call.subject)
        found = call.state.mode(call.subject)
    return {"mode": found}
