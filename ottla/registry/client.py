"""A client of a schema registry: it speaks Confluent's REST API by the standard library, and caches what never changes.

    client = RegistryClient("http://localhost:8081")
    decoder = Decoder(client)                     # ottla/registry/decoder.py
    decoded = await decoder.decode(record.value)

The schema of an id, and a version of a subject, never change, so they are requested only once. All calls block: an event loop
runs them on a thread (`asyncio.to_thread`).
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from ottla.registry.recent import Recent
from ottla.registry.timely_http import TimelyHttp, TimelyHttps

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
#: The time limit of one response, from the connection to its last byte.
TIMEOUT_S = 10.0
#: A larger response of a registry is not read: Kafka's records are smaller, and a schema is one record.
ANSWER_BYTES_MAX = 16 * 1024 * 1024
#: The most schemas that one schema may need, and their total bytes: a faulty or hostile registry could name ever more.
DEPENDENCIES_MAX = 1_000
DEPENDENCY_BYTES_MAX = ANSWER_BYTES_MAX
#: The bytes of the cached schemas, with all that they need. A schema that was dropped is requested again.
CACHED_BYTES_MAX = 64 * 1024 * 1024
#: The bytes of a schema's objects besides its texts, with the cache's entry.
ENTRY_BYTES = 1_000
AVRO, JSON_SCHEMA, PROTOBUF = "AVRO", "JSON", "PROTOBUF"


class RegistryFailed(Exception):
    """The registry cannot be reached, or has responded with an error. `code` is its error code, such as 40403, or 0."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to another schema: the name by which it is imported, and where it is registered."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A registered schema. `references` are in the order in which it was registered with them."""

    text: str
    kind: str = AVRO
    references: tuple[Reference, ...] = ()
    #: The texts of all schemas that it needs, directly or not, by the names of their imports. Each comes after those that it
    #: needs itself.
    dependencies: dict[str, str] = field(default_factory=dict, compare=False)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


class RegistryClient:
    """A client of one registry, or of several instances of it, which are tried in order ("http://a:8081,http://b:8081")."""

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        ca_file: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Take the address. It may contain a login: https://user:password@host:8081."""
        self.urls = [_without_login(part) for part in url.split(",") if part.strip()]
        login = urllib.parse.urlsplit(url.split(",")[0].strip())
        if user is None and login.username is not None:
            user, password = urllib.parse.unquote(login.username), urllib.parse.unquote(login.password or "")
        self._authorization = None
        if user is not None:
            self._authorization = "Basic " + base64.b64encode(f"{user}:{password or ''}".encode()).decode()
        self._tls = (
            ssl.create_default_context(cafile=ca_file) if any(u.startswith("https") for u in self.urls) else None
        )
        # A login is sent only to the address for which it was given, not to another one in the list.
        self._opener = urllib.request.build_opener(_NoRedirects, TimelyHttp, TimelyHttps(self._tls))
        self._timeout_s = timeout_s
        self._schemas: Recent[tuple[int, str], Schema] = Recent(CACHED_BYTES_MAX)
        self._lock = threading.Lock()

    @classmethod
    def of(cls, url: str, config: str | None = None) -> RegistryClient:
        """Return the client for an address and a properties file, so that a login need not be in a command line.

        The file has properties of Confluent's clients: basic.auth.user.info=NAME:PASSWORD and ssl.ca.location, also with
        `schema.registry.` before them.

        Raises:
            OSError, ValueError: the file cannot be read, or has other lines.
        """
        user = password = ca_file = None
        for line in [] if config is None else _lines_of(config):
            name, _, value = (part.strip() for part in line.partition("="))
            match name.removeprefix("schema.registry."):
                case "basic.auth.user.info":
                    user, _, password = value.partition(":")
                case "ssl.ca.location":
                    ca_file = value
                case _:
                    raise ValueError(f"{config}: {name} is none of basic.auth.user.info and ssl.ca.location")
        return cls(url, user=user, password=password, ca_file=ca_file)

    def schema(self, schema_id: int, subject: str = "") -> Schema:
        """Return the schema of an id, with all schemas that it needs. `subject` only names the context of the id.

        Raises:
            RegistryFailed: there is none (40403), or the registry cannot be reached.
        """
        with self._lock:
            found = self._schemas.get((schema_id, subject))
        if found is None:
            query = {"subject": subject} if subject else {}
            row = self.get(f"/schemas/ids/{schema_id}", query)
            found = self._schema_of(row)
            with self._lock:
                self._schemas.keep((schema_id, subject), found, _size_of(found))
        return found

    def subjects(self, *, deleted: bool = False, prefix: str = "") -> list[str]:
        query = {"deleted": "true"} if deleted else {}
        rows: list[str] = self.get("/subjects", query | ({"subjectPrefix": prefix} if prefix else {}))
        return rows

    def versions(self, subject: str) -> list[int]:
        rows: list[int] = self.get(f"/subjects/{quote(subject)}/versions")
        return rows

    def version(self, subject: str, version: int | str = "latest") -> dict[str, Any]:
        """Return Confluent's row of a version: subject, version, id, schema, and schemaType unless it is Avro."""
        row: dict[str, Any] = self.get(f"/subjects/{quote(subject)}/versions/{version}")
        return row

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Register a schema under a subject, and return its id. If it is registered already, that is its present id."""
        query = "?normalize=true" if normalize else ""
        row = self.request("POST", f"/subjects/{quote(subject)}/versions{query}", schema_body(schema))
        return int(row["id"])

    def get(self, path: str, query: dict[str, str] | None = None) -> Any:
        return self.request("GET", path + ("?" + urllib.parse.urlencode(query) if query else ""))

    def request(self, method: str, path: str, body: object | None = None) -> Any:
        """Send one request to the first instance that can be reached, and return its JSON.

        Raises:
            RegistryFailed: no instance can be reached, or the response is an error.
        """
        lost = ""
        for url in self.urls:
            try:
                return self._ask(url, method, path, body)
            except urllib.error.HTTPError as fault:
                raise _failure_of(fault) from None
            except (OSError, ValueError, RecursionError, http.client.HTTPException) as fault:
                lost = f"the schema registry at {url} cannot be reached: {getattr(fault, 'reason', fault)}"
        raise RegistryFailed(lost or "no address of a schema registry is set")

    def _ask(self, url: str, method: str, path: str, body: object | None) -> Any:
        headers = {"Accept": MEDIA_TYPE + ", application/json", "Content-Type": MEDIA_TYPE}
        if self._authorization is not None:
            headers["Authorization"] = self._authorization
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url + path, data, headers, method=method)
        with self._opener.open(request, timeout=self._timeout_s) as response:
            read = response.read(ANSWER_BYTES_MAX + 1)
        if len(read) > ANSWER_BYTES_MAX:
            raise RegistryFailed(f"the answer of {url} is longer than {ANSWER_BYTES_MAX} bytes")
        return json.loads(read) if read else None

    def _schema_of(self, row: dict[str, Any]) -> Schema:
        try:
            references = references_of(row)
            return Schema(row["schema"], row.get("schemaType") or AVRO, references, self._needed_by(references))
        except (KeyError, TypeError, AttributeError) as fault:
            raise RegistryFailed(f"the registry's answer is no schema: {fault!r}") from None

    def _needed_by(self, references: tuple[Reference, ...]) -> dict[str, str]:
        """Return the texts of the referenced schemas, each after those that it needs itself.

        Raises:
            RegistryFailed: there are too many, or they are too long.
        """
        found: dict[str, str] = {}
        entered: set[tuple[str, int]] = set()
        size = 0
        # For each schema on the way down: its remaining references, and its name and text.
        way = [(iter(references), "", "")]
        while way:
            left, name, text = way[-1]
            reference = next(left, None)
            if reference is None:
                way.pop()
                if way:
                    found[name] = text
                continue
            place = (reference.subject, reference.version)
            if reference.name in found or place in entered:
                continue
            entered.add(place)
            row = self.version(*place)
            size += len(row["schema"].encode())
            if len(entered) > DEPENDENCIES_MAX or size > DEPENDENCY_BYTES_MAX:
                raise RegistryFailed(
                    f"the schema needs more than {DEPENDENCIES_MAX} others or {DEPENDENCY_BYTES_MAX} bytes of them"
                )
            way.append((iter(references_of(row)), reference.name, row["schema"]))
        return found


def schema_body(schema: Schema) -> dict[str, Any]:
    """Return the body of a request with a schema."""
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind != AVRO:
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = [
            {"name": row.name, "subject": row.subject, "version": row.version} for row in schema.references
        ]
    return body


def references_of(row: dict[str, Any]) -> tuple[Reference, ...]:
    """Return the references in a schema's JSON."""
    return tuple(Reference(part["name"], part["subject"], part["version"]) for part in row.get("references") or ())


def quote(part: str) -> str:
    """Return a subject, quoted as one part of a path."""
    return urllib.parse.quote(part, safe="")


def _lines_of(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip() and not line.lstrip().startswith("#")]


def _without_login(url: str) -> str:
    parts = urllib.parse.urlsplit(url.strip().rstrip("/"))
    host = parts.netloc.rpartition("@")[2]
    return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", ""))


def _size_of(schema: Schema) -> int:
    """Return how many bytes a schema takes in memory."""
    names = (part for row in schema.references for part in (row.name, row.subject))
    return ENTRY_BYTES + sum(
        map(sys.getsizeof, (schema.text, *names, *schema.dependencies, *schema.dependencies.values()))
    )


def _failure_of(fault: urllib.error.HTTPError) -> RegistryFailed:
    try:
        row = json.loads(fault.read(ANSWER_BYTES_MAX))
        return RegistryFailed(str(row["message"]), int(row["error_code"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, http.client.HTTPException):
        return RegistryFailed(f"the schema registry answers {fault.code} {fault.reason}", fault.code)
