"""A REST catalog of Iceberg in memory, with OAuth2, whose responses can be lost. Tests of tables write through it.

The requests and answers are those of Iceberg's REST specification, made and read by pyiceberg's own models; the metadata's
files are in a folder. A fault applies to the next commit's response, after or before its effect.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qs

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table import CommitTableRequest, Table

from ottla.tables.directory_store import DirectoryStore
from ottla.tables.file_catalog import FileCatalog

CREDENTIAL, TOKEN = "me:secret", "a-token"
#: The faults: the commit has happened, and its response has this status; it has not happened; the connection is cut after its
#: effect.
HAPPENED_500, HAPPENED_502, HAPPENED_504, BEFORE_500, BEFORE_503, CUT = "500", "502", "504", "!500", "!503", "cut"


class RestCatalogServer:
    """The server. `faults` are used up from the front, one for each commit."""

    def __init__(self, folder: Path) -> None:
        self._catalog = FileCatalog(DirectoryStore(str(folder)))
        self._lock = Lock()
        self.faults: list[str] = []
        self.commits = self.logins = 0

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, Any]]:
        words = path.partition("?")[0].removeprefix("/v1/").split("/")
        if words == ["config"]:
            return 200, {"defaults": {}, "overrides": {}}
        if words == ["oauth", "tokens"]:
            form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            if f"{form.get('client_id')}:{form.get('client_secret')}" != CREDENTIAL:
                return 401, {"error": "invalid_client", "error_description": "wrong credential"}
            self.logins += 1
            return 200, {"access_token": TOKEN, "token_type": "bearer", "expires_in": 3600}
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return _error(401, "NotAuthorizedException", "no token")
        with self._lock:
            return self._of_tables(method, words, body)

    def _of_tables(self, method: str, words: list[str], body: bytes) -> tuple[int, dict[str, Any]]:
        match words:
            case ["namespaces"]:
                return 200, json.loads(body)
            case ["namespaces", _]:
                return (204, {}) if method == "HEAD" else (200, {"namespace": [words[1]], "properties": {}})
            case ["namespaces", namespace, "tables"]:
                asked = CreateTableRequest.model_validate_json(body)
                try:
                    self._catalog.load_table((namespace, asked.name))
                    return _error(409, "AlreadyExistsException", asked.name)
                except NoSuchTableError:
                    schema = assign_fresh_schema_ids(asked.table_schema)
                    made = self._catalog.create_table(
                        (namespace, asked.name), schema, asked.location, properties=asked.properties
                    )
                    return 200, _body(made)
            case ["namespaces", namespace, "tables", name]:
                try:
                    table = self._catalog.load_table((namespace, name))
                except NoSuchTableError:
                    return _error(404, "NoSuchTableException", name)
                return (200, _body(table)) if method == "GET" else self._commit(table, body)
        return _error(404, "NotFoundException", "/".join(words))

    def _commit(self, table: Table, body: bytes) -> tuple[int, dict[str, Any]]:
        fault = self.faults.pop(0) if self.faults else ""
        if fault.startswith("!"):
            return _error(int(fault[1:]), "ServiceFailureException", "before its effect")
        asked = CommitTableRequest.model_validate_json(body)
        try:
            self._catalog.commit_table(table, asked.requirements, asked.updates)
        except CommitFailedException as refused:
            return _error(409, "CommitFailedException", str(refused))
        self.commits += 1
        if fault == CUT:
            raise ConnectionAbortedError
        if fault:
            return _error(int(fault), "InternalServerError", "the answer is lost")
        return 200, _body(self._catalog.load_table(table.name()))


@contextmanager
def rest_catalog(folder: Path) -> Iterator[tuple[RestCatalogServer, str]]:
    """Run such a server. Yield it and its address."""
    catalog = RestCatalogServer(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                status, answer = catalog.answer(self.command, self.path, self.headers, body)
            except ConnectionAbortedError:
                self.close_connection = True
                return
            data = b"" if status == 204 else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_HEAD = do_DELETE = _handle

        def log_message(self, format: str, *args: Any) -> None:
            """Write no log lines to a test's output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield catalog, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _body(table: Table) -> dict[str, Any]:
    metadata = json.loads(table.metadata.model_dump_json())
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def _error(status: int, kind: str, message: str) -> tuple[int, dict[str, Any]]:
    return status, {"error": {"type": kind, "message": message, "code": status}}
