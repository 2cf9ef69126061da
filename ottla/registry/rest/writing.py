"""Writes, which the leader handles, and the two checks of a schema in a request: whether it is registered, and whether it is
compatible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.registry import decisions
from ottla.registry.decisions import asked_from
from ottla.registry.errors import ERRORS, RegistryError
from ottla.registry.log import LogPlace
from ottla.registry.numbers import version_of
from ottla.registry.rest.request import RestCall
from ottla.registry.schema_records import Record, answer_of, guid_of
from ottla.registry.subjects import is_valid

#: The response to a write, and the place up to which a reader must have read.
Written = tuple[Any, LogPlace]
INVALID_SCHEMA = ERRORS["invalid_schema"].code


# -- Questions -----------------------------------------------------------------------------------------------------------


async def lookup(call: RestCall) -> Any:
    call.require("read")
    asked = asked_from(call.json())
    found = await call.registry.find(
        call.who, call.subject, asked, normalize=call.flag("normalize"), deleted=call.flag("deleted")
    )
    return answer_of(found) | {"schema": await call.registry.formatted(call.who, found, call.text("format"))}


async def compatible(call: RestCall) -> Any:
    """Compare a schema with one version of the subject, or with the versions that its level requires."""
    call.require("read")
    asked = asked_from(call.json())
    state, subject = call.state, call.subject
    named = call.parameters.get("version")
    if named is None:
        earlier = state.versions(subject)
    else:
        number = version_of(named)
        found = state.version(subject, number)
        if found is None and number > 0:
            raise RegistryError("version", number)
        earlier = [] if found is None else [found]
    try:
        messages = await call.registry.incompatibilities(
            call.who, subject, asked, earlier, normalize=call.flag("normalize")
        )
    except RegistryError as fault:
        # Clients that request the messages print them: Maven's plugin, Terraform.
        if not call.flag("verbose") or fault.code != INVALID_SCHEMA:
            raise
        messages = [fault.message]
    answer: dict[str, Any] = {"is_compatible": not messages}
    return answer | {"messages": messages} if call.flag("verbose") else answer


# -- Writes --------------------------------------------------------------------------------------------------------------


async def register(call: RestCall) -> Written:
    call.require("write")
    call.check_subject()
    asked = asked_from(call.json(), is_new=True)
    version, place = await call.registry.register(
        call.who, call.subject, asked, normalize=call.flag("normalize"), force=call.flag("force")
    )
    return {"id": version.id, "version": version.version, "guid": guid_of(version)}, place


async def delete_version(call: RestCall) -> Written:
    call.require("delete")
    number = version_of(call.parameters["version"])
    return await _decided(call, decisions.delete_version, number, permanent=call.flag("permanent"))


async def delete_subject(call: RestCall) -> Written:
    call.require("delete")
    return await _decided(call, decisions.delete_subject, permanent=call.flag("permanent"))


async def set_config(call: RestCall) -> Written:
    call.require("config")
    _check_place(call)
    return await _decided(call, decisions.set_config, call.json())


async def delete_config(call: RestCall) -> Written:
    call.require("config")
    return await _decided(call, decisions.delete_config)


async def set_mode(call: RestCall) -> Written:
    call.require("config")
    _check_place(call)
    return await _decided(call, decisions.set_mode, call.json(), force=call.flag("force"))


async def delete_mode(call: RestCall) -> Written:
    call.require("config")
    return await _decided(call, decisions.delete_mode)


async def _decided(
    call: RestCall, decision: Callable[..., tuple[Any, list[Record]]], *arguments: Any, **flags: bool
) -> Written:
    """Decide about the subject of the call, with the state that the leader has then."""

    return await call.registry.write(lambda: decision(call.state, call.subject, *arguments, **flags))


def _check_place(call: RestCall) -> None:
    """Check the subject of a configuration or mode, which may also be a context, or none."""
    if not is_valid(call.subject + "x"):
        raise RegistryError("invalid_subject", call.subject)
