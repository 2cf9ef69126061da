"""The reading half of Iceberg's REST catalog API, over tables whose metadata is only files. So every engine needs only one URL.

Source: open-api/rest-catalog-open-api.yaml of Apache Iceberg 1.10. Requests that write are rejected with 406: the tables belong
to topics, and only Ottla writes them.

    GET   /v1/config                                  what it serves
    POST  /v1/oauth/tokens                            a token for a login (grant client_credentials), where logins are asked for
    GET   /v1/namespaces, HEAD and GET below it       the namespace `ottla`
    GET   /v1/namespaces/ottla/tables                 topics, and their tables of rejected records
    GET   /v1/namespaces/ottla/tables/NAME            the newest metadata; with If-None-Match 304 if it is known
    HEAD  /v1/namespaces/ottla/tables/NAME            204, or 404
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, parse_qsl, unquote_to_bytes

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ottla.registry.access import Access, RegistryLogins
from ottla.registry.errors import RegistryError
from ottla.tables.store import StoreFailure
from ottla.tables.table import NAMESPACE
from ottla.tables.table_location import TableLocation

T = TypeVar("T")

#: The most calls to the store at the same time, and how long a request waits for its turn.
CALLS_MAX = 64
CALL_S_MAX = 70.0
#: The media type of a login form.
FORM_BYTES_MAX = 8 * 1024
#: The most valid tokens: beyond it the oldest one becomes invalid.
TOKENS_MAX = 10_000

_TABLE = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"
ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    f"GET {_TABLE}",
    f"HEAD {_TABLE}",
)


class CatalogError(Exception):
    """The response to a request is an error: its status, and the name of the exception in Iceberg's clients."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


class _Call(NamedTuple):
    """A request that reads: the parts of its path after /v1, its query, and the version that the client has."""

    parts: list[str]
    query: Mapping[str, list[str]]
    known: str
    is_head: bool


class CatalogApplication:
    """An ASGI application over the tables of one location."""

    def __init__(
        self, location: TableLocation, access: Access, defaults: Mapping[str, str], new_token: Callable[[], str]
    ) -> None:
        """Take the logins, and the store's properties for clients, without secrets."""
        self._location = location
        self._access = access
        self._logins = RegistryLogins(access)
        self._defaults = dict(defaults)
        self._new_token = new_token
        self._tokens: dict[str, str] = {}
        self._calls = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        try:
            answer = await self._answer(Request(scope, receive))
        except CatalogError as fault:
            answer = failure(fault)
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            parts = [unquote_to_bytes(part).decode() for part in request.scope["raw_path"].split(b"/") if part]
        except UnicodeDecodeError:
            raise _no_path() from None
        if parts[:1] != ["v1"]:
            raise _no_path()
        if parts == ["v1", "oauth", "tokens"] and request.method == "POST":
            return await self._token(request)
        await self._check_login(request)
        if request.method not in ("GET", "HEAD"):
            text = f"{request.method}: these are the tables of topics, which Ottla alone writes"
            raise CatalogError(406, "UnsupportedOperationException", text)
        try:
            query = parse_qs(request.url.query, max_num_fields=20)
        except ValueError as fault:
            raise CatalogError(400, "BadRequestException", f"{fault}") from fault
        known = request.headers.get("if-none-match", "")
        return await self._read(_Call(parts[1:], query, known, request.method == "HEAD"))

    async def _read(self, call: _Call) -> Response:
        match call.parts:
            case ["config"] if not call.is_head:
                return JSONResponse({"defaults": self._defaults, "overrides": {}, "endpoints": ENDPOINTS})
            case ["namespaces"] if not call.is_head:
                return JSONResponse({"namespaces": [] if any(call.query.get("parent", ())) else [[NAMESPACE]]})
            case ["namespaces", name]:
                _check_namespace(name)
                return _no_content() if call.is_head else JSONResponse({"namespace": [NAMESPACE], "properties": {}})
            case ["namespaces", name, "tables"] if not call.is_head:
                _check_namespace(name)
                tables = await self._stored(self._location.iceberg_tables)
                return JSONResponse({"identifiers": [{"namespace": [NAMESPACE], "name": table} for table in tables]})
            case ["namespaces", name, "tables", table]:
                if name != NAMESPACE:  # Spark first requests the table `snapshots` of a namespace `ottla.orders`
                    raise _no_table(table)
                return await self._table(table, call)
        raise _no_path()

    async def _table(self, table: str, call: _Call) -> Response:
        version = await self._stored(partial(self._location.metadata_version, table))
        if version is None:
            raise _no_table(table)
        if call.is_head:
            return _no_content()
        only_referenced = call.query.get("snapshots") == ["refs"]
        tag = f'"{version}{"-refs" if only_referenced else ""}"'
        if call.known == tag:
            return Response(status_code=304, headers={"ETag": tag})
        body = await self._stored(partial(_loaded, self._location, table, version, only_referenced=only_referenced))
        if body is None:
            raise _no_table(table)
        return Response(body, media_type="application/json", headers={"ETag": tag})

    async def _stored(self, call: Callable[[], T]) -> T:
        """Return the result of a call to the store, on a thread. A call that does not end in time is abandoned."""
        if self._calls >= CALLS_MAX:
            raise CatalogError(503, "ServiceUnavailableException", "too many calls to the store are under way")
        self._calls += 1
        work = asyncio.get_running_loop().run_in_executor(None, call)
        work.add_done_callback(self._end)
        try:
            async with asyncio.timeout(CALL_S_MAX):
                return await asyncio.shield(work)
        except TimeoutError:
            text = f"the store has not answered within {CALL_S_MAX:g} s"
            raise CatalogError(503, "ServiceUnavailableException", text) from None
        except StoreFailure as fault:
            raise CatalogError(503, "ServiceUnavailableException", f"{fault}") from fault

    def _end(self, work: asyncio.Future[Any]) -> None:
        self._calls -= 1
        if not work.cancelled():
            work.exception()  # the call may have been abandoned

    # -- Logins

    async def _check_login(self, request: Request) -> None:
        header = request.headers.get("authorization")
        scheme, _, token = (header or "").partition(" ")
        if self._access.is_open or (scheme.lower() == "bearer" and token.strip() in self._tokens):
            return
        await self._user(request, header)

    async def _token(self, request: Request) -> Response:
        """Respond with a token for a login (RFC 6749, 4.4). It is valid until the server ends."""
        try:
            form = dict(parse_qsl((await _form(request)).decode(), max_num_fields=20))
        except ValueError as fault:
            raise CatalogError(400, "BadRequestException", f"{fault}") from fault
        header = request.headers.get("authorization")
        if "client_secret" in form:
            login = f"{form.get('client_id', '')}:{form['client_secret']}"
            header = f"Basic {base64.b64encode(login.encode()).decode()}"
        user = await self._user(request, header)
        while len(self._tokens) >= TOKENS_MAX:
            del self._tokens[next(iter(self._tokens))]
        token = self._new_token()
        self._tokens[token] = user
        return JSONResponse({"access_token": token, "token_type": "bearer", "issued_token_type": _ACCESS_TOKEN})

    async def _user(self, request: Request, header: str | None) -> str:
        try:
            return await self._logins.user(header, request.client.host if request.client is not None else "")
        except RegistryError as fault:
            raise CatalogError(fault.status, "NotAuthorizedException", f"{fault}") from fault


_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"


def failure(fault: CatalogError) -> Response:
    """Return the response for an error, as Iceberg's ErrorModel."""
    headers = {"WWW-Authenticate": 'Basic realm="Iceberg"'} if fault.status == 401 else None
    row = {"message": fault.message, "type": fault.kind, "code": fault.status}
    return JSONResponse({"error": row}, fault.status, headers=headers)


def _loaded(location: TableLocation, table: str, version: int, *, only_referenced: bool) -> bytes | None:
    """Return Iceberg's LoadTableResult for a version of a table. It blocks."""
    found = location.metadata(table, version)
    if found is None:
        return None
    if only_referenced:
        try:
            kept = {each["snapshot-id"] for each in found.body.get("refs", {}).values()}
            kept.add(found.body.get("current-snapshot-id"))
            found.body["snapshots"] = [row for row in found.body.get("snapshots", ()) if row["snapshot-id"] in kept]
        except (AttributeError, KeyError, TypeError) as fault:
            raise StoreFailure(f"{found.url} is no metadata of a table: {fault!r:.200}") from fault
    return json.dumps({"metadata-location": found.url, "metadata": found.body, "config": {}}).encode()


def _check_namespace(name: str) -> None:
    if name != NAMESPACE:
        raise CatalogError(404, "NoSuchNamespaceException", f"there is no namespace {name[:200]!r}")


def _no_table(name: str) -> CatalogError:
    return CatalogError(404, "NoSuchTableException", f"there is no table {name[:300]!r}")


def _no_path() -> CatalogError:
    return CatalogError(404, "NoSuchPathException", "this catalog has no such path")


def _no_content() -> Response:
    return Response(status_code=204)


async def _form(request: Request) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES_MAX:
            raise CatalogError(413, "BadRequestException", f"a login of more than {FORM_BYTES_MAX} bytes")
    return body
