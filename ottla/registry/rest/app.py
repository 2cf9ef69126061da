"""The application: the table of paths, logins, errors, contexts in paths, and the forwarding of writes to the leader."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ottla.registry.access import Access, RegistryLogins
from ottla.registry.client import MEDIA_TYPE
from ottla.registry.errors import RegistryError
from ottla.registry.members import ANSWERED, SIGNED
from ottla.registry.registry import SchemaRegistry
from ottla.registry.rest import reading, writing
from ottla.registry.rest.forwarding import NO_LINK, OFFSET, Link, forward
from ottla.registry.rest.forwarding import target_of as received_target
from ottla.registry.rest.paths import PathTarget, parameters_of, target_of
from ottla.registry.rest.request import BODY_BYTES_MAX, RestCall

logger = logging.getLogger(__name__)

READ, WRITE, TEXT = "read", "write", "text"
Handler = Callable[[RestCall], Awaitable[Any]]


class Path(NamedTuple):
    """A row: method, path, handler, and whether it reads, writes, or responds with a schema's own text."""

    method: str
    path: str
    handler: Handler
    kind: str = READ


SUBJECT = "/subjects/{subject}"
VERSION = SUBJECT + "/versions/{version}"
CHECK = "/compatibility/subjects/{subject}/versions"
PATHS = (
    Path("GET", "/", reading.root),
    Path("POST", "/", reading.root),
    Path("GET", "/subjects", reading.subjects),
    Path("POST", SUBJECT, writing.lookup),
    Path("DELETE", SUBJECT, writing.delete_subject, WRITE),
    Path("GET", SUBJECT + "/metadata", reading.latest_with_metadata),
    Path("GET", SUBJECT + "/versions", reading.versions),
    Path("POST", SUBJECT + "/versions", writing.register, WRITE),
    Path("GET", VERSION, reading.version),
    Path("DELETE", VERSION, writing.delete_version, WRITE),
    Path("GET", VERSION + "/schema", reading.version_text, TEXT),
    Path("GET", VERSION + "/referencedby", reading.referenced_by),
    Path("GET", "/schemas", reading.schemas),
    Path("GET", "/schemas/types", reading.types),
    Path("GET", "/schemas/ids/{id}", reading.schema),
    Path("GET", "/schemas/ids/{id}/schema", reading.schema_text, TEXT),
    Path("GET", "/schemas/ids/{id}/subjects", reading.schema_subjects),
    Path("GET", "/schemas/ids/{id}/versions", reading.schema_versions),
    Path("GET", "/schemas/guids/{guid}", reading.schema_of_guid),
    Path("GET", "/schemas/guids/{guid}/ids", reading.ids_of_guid),
    Path("POST", CHECK, writing.compatible),
    Path("POST", CHECK + "/{version}", writing.compatible),
    Path("GET", "/config", reading.config),
    Path("PUT", "/config", writing.set_config, WRITE),
    Path("DELETE", "/config", writing.delete_config, WRITE),
    Path("GET", "/config/{subject}", reading.config),
    Path("PUT", "/config/{subject}", writing.set_config, WRITE),
    Path("DELETE", "/config/{subject}", writing.delete_config, WRITE),
    Path("GET", "/mode", reading.mode),
    Path("PUT", "/mode", writing.set_mode, WRITE),
    Path("DELETE", "/mode", writing.delete_mode, WRITE),
    Path("GET", "/mode/{subject}", reading.mode),
    Path("PUT", "/mode/{subject}", writing.set_mode, WRITE),
    Path("DELETE", "/mode/{subject}", writing.delete_mode, WRITE),
    Path("GET", "/contexts", reading.contexts),
    Path("GET", "/v1/metadata/id", reading.server_id),
    Path("GET", "/v1/metadata/version", reading.server_version),
)


class Application:
    """An ASGI application over one instance of the registry."""

    def __init__(self, registry: SchemaRegistry, access: Access, link: Link = NO_LINK) -> None:
        self._registry = registry
        self._access = access
        self._logins = RegistryLogins(access)
        self._link = link

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        try:
            target = target_of(scope["raw_path"], scope["query_string"])
            request = Request(
                {
                    **scope,
                    "received_query": scope["query_string"],
                    "query_string": target.query.encode("latin-1"),
                },
                receive,
            )
            answer = await self._routed(request, target)
        except RegistryError as fault:
            answer = failure(fault)
        await answer(scope, receive, send)

    async def _routed(self, request: Request, target: PathTarget) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        allowed = []
        for row in PATHS:
            parameters = parameters_of(row.path, target.parts)
            if parameters is None:
                continue
            if row.method == method:
                return await self._answer(row, request, parameters)
            allowed.append(row.method)
        if not allowed:
            raise RegistryError("no_such_path")
        if method == "OPTIONS":
            return Response(headers={"Allow": ", ".join(sorted({*allowed, "OPTIONS"}))})
        raise RegistryError("method")

    async def _answer(self, row: Path, request: Request, parameters: dict[str, str]) -> Response:
        members, signed = self._link.members, request.headers.get(SIGNED)
        if members is None or signed is None:
            address = request.client.host if request.client is not None else ""
            user = await self._logins.user(request.headers.get("authorization"), address)
            call = RestCall(self._registry, self._access, user, request, await _body(request), parameters)
            return await self._called(row, call)
        body = await _body(request)
        try:
            target = received_target(request.scope)
            user, address, number = members.asked(signed, request.method, target, body)
        except (ValueError, KeyError, TypeError) as fault:
            logger.warning("a forwarded request is refused: %.200s", fault)
            raise RegistryError("unauthorized") from None
        call = RestCall(self._registry, self._access, user, request, body, parameters, address)
        try:
            answer = await self._called(row, call)
        except RegistryError as fault:
            answer = failure(fault)
        offset = answer.headers.get(OFFSET, "")
        answer.headers[ANSWERED] = members.answer(number, answer.status_code, offset, bytes(answer.body))
        return answer

    async def _called(self, row: Path, call: RestCall) -> Response:
        if row.kind == WRITE:
            leader = await self._registry.known_leader()
            if not self._registry.is_leader:
                return await forward(call, leader, self._link)
        if SUBJECT in row.path:
            call.parameters["subject"] = self._registry.state.alias_of(call.subject)
        answer = await row.handler(call)
        if row.kind == WRITE:
            answer, place = answer
            return JSONResponse(answer, media_type=MEDIA_TYPE, headers={OFFSET: place.text()})
        if row.kind == TEXT:
            return Response(answer, media_type=MEDIA_TYPE)
        return JSONResponse(answer, media_type=MEDIA_TYPE)


def failure(fault: RegistryError) -> Response:
    headers = {"WWW-Authenticate": 'Basic realm="SchemaRegistry"'} if fault.status == 401 else None
    row = {"error_code": fault.code, "message": fault.message}
    return JSONResponse(row, fault.status, media_type=MEDIA_TYPE, headers=headers)


async def _body(request: Request) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > BODY_BYTES_MAX:
            raise RegistryError("too_long", BODY_BYTES_MAX)
        chunks.append(chunk)
    return b"".join(chunks)
