"""The control port: the verbs of a cluster over HTTP, for tests in other languages (`ottla dev --faults`).

    GET  /         the verbs, with their fields
    POST /VERB     runs a verb; its arguments are a JSON object, and so is the response

An error is an object with `error`, its kind, `message` and `remedy`. Its verbs can destroy records, kill nodes and move time.
So it listens only on this machine, and rejects requests from pages of other sites. A cluster with logins has a token:
`Authorization: Bearer TOKEN`.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock, Thread
from typing import Any

from ottla.client.failures import Failure
from ottla.local.nodes import HOST
from ottla.server.hosts import LOOPBACK
from ottla.testing.cluster import Cluster
from ottla.testing.errors import WrongUse
from ottla.testing.verbs import InvalidArguments, RemoteCluster, UnknownVerb, perform
from ottla.web.rules import App, HttpRules, Receive, Ruled, Scope, Send, headers_of
from ottla.web.server import HttpServer

log = logging.getLogger(__name__)

JSON = "application/json"
#: A request is a name and some numbers. The longest have the configurations of a topic.
BODY_BYTES_MAX = 64 * 1024
#: A test suite has a few connections; any others come from clients that do not read.
CONNECTIONS_MAX = 64
#: The most verbs that run or wait at the same time, in threads. Further ones get 503.
RUNNING_MAX = 32
LOOK_S = 0.2
#: The warnings of these loggers do not help a tester: a client offers HTTP/2, as Java's does, or the machine is busy.
QUIET = ("uvicorn", "ottla.server.loop_watch")


class ControlPort:
    """The application, for one cluster."""

    def __init__(self, cluster: Cluster, token: str | None = None) -> None:
        self._remote = RemoteCluster(cluster)
        self._token = token
        self._lock = Lock()
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            status, answer = await self._answer(scope, receive)
        except _Gone:
            return
        await _respond(answer, status)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[int, dict[str, Any]]:
        name, method = scope["path"].strip("/"), scope["method"]
        if self._token is not None and not self._knows(headers_of(scope).get("authorization", "")):
            return 401, _error("Unauthorized", "this cluster has logins", "send Authorization: Bearer TOKEN")
        if not name and method == "GET":
            return 200, {"verbs": [verb.row() for verb in self._remote.verbs.values()]}
        try:
            verb = self._remote.verb(name)
            if method != "POST":
                return 405, _error("MethodNotAllowed", f"{method[:20]} /{name}", f"POST /{name} runs the verb")
            arguments = _read(await _body(receive))
            if self._running >= RUNNING_MAX:
                return 503, _error("Busy", f"{RUNNING_MAX} requests are served", "wait for the end of others")
            return 200, await self._in_thread(partial(self._perform, name, arguments))
        except UnknownVerb as fault:
            return 404, _error("UnknownVerb", fault.cause, fault.remedy)
        except WrongUse as fault:
            return 400, _error(type(fault).__name__, fault.cause, fault.remedy)
        except Failure as fault:  # the cluster's own response, such as that a topic exists
            return 400, _error("Refused", fault.cause, fault.remedy)
        except _TooLong:
            return 413, _error("TooLong", f"more than {BODY_BYTES_MAX} bytes", f"the fields of {verb.name} need less")
        except TimeoutError as fault:
            return 504, _error("TimedOut", str(fault), None)
        except Exception as fault:
            log.exception("the verb %s failed", name)
            return 500, _error("Failed", str(fault)[:1_000], "the output of `ottla dev` has more")

    def _perform(self, name: str, arguments: object) -> dict[str, Any]:
        verb = self._remote.verb(name)
        if not verb.changes:
            return perform(verb, arguments)
        with self._lock:  # only one thread at a time changes a cluster
            return perform(verb, arguments)

    async def _in_thread(self, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Run in a thread that does not keep the process from ending, unlike one of a pool."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[dict[str, Any]] = loop.create_future()

        def settle(result: dict[str, Any] | None, failure: Exception | None) -> None:
            self._running -= 1
            if outcome.done():  # its client has disconnected
                return
            if failure is None:
                outcome.set_result(result or {})
            else:
                outcome.set_exception(failure)

        def work() -> None:
            result, failure = None, None
            try:
                result = run()
            except Exception as raised:
                failure = raised
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(settle, result, failure)

        self._running += 1
        Thread(target=work, name="ottla verb", daemon=True).start()
        return await outcome

    def _knows(self, authorization: str) -> bool:
        kind, _, token = authorization.partition(" ")
        return kind.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), (self._token or "").encode())


class _TooLong(Exception):
    """The body is longer than any verb needs."""


class _Gone(Exception):
    """The client has closed its connection before the end of its request."""


async def _body(receive: Receive) -> bytes:
    data = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _Gone
        data += message.get("body", b"")
        if len(data) > BODY_BYTES_MAX:
            raise _TooLong
        if not message.get("more_body"):
            return bytes(data)


def _read(body: bytes) -> object:
    """Return the JSON of a body. Raises InvalidArguments if it is no JSON."""
    try:
        return json.loads(body or b"{}")
    except (ValueError, RecursionError) as fault:
        why = str(fault)[:200] if isinstance(fault, ValueError) else "it is nested too deeply"
        raise InvalidArguments(f"the body is no JSON: {why}", "it is an object of the verb's fields") from None


def _error(kind: str, message: str, remedy: str | None) -> dict[str, Any]:
    return {"error": kind, "message": message} | ({} if remedy is None else {"remedy": remedy})


def _respond(answer: dict[str, Any], status: int) -> App:
    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        body = json.dumps(answer).encode() + b"\n"
        headers = [
            (b"content-type", JSON.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"x-content-type-options", b"nosniff"),
        ]
        if status == 413:  # the rest of the body is not read
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return respond


def http_server(port: ControlPort) -> HttpServer:
    """Return the server. It only accepts requests with this machine's names."""
    rules = HttpRules(LOOPBACK, frozenset({JSON}))
    return HttpServer(Ruled(port, rules, _refusal), CONNECTIONS_MAX, keep_alive_s=60, stop_s=1)


def _refusal(status: int, text: str) -> App:
    return _respond(_error("Refused", text, f"send a body of the type {JSON}" if status == 415 else None), status)


def listen(port: int) -> socket.socket:
    """Listen on a port of this machine; 0 means a free one.

    Raises:
        OSError: the port is in use.
    """
    return socket.create_server((HOST, port))


def serve(cluster: Cluster, listening: socket.socket, token: str | None, look: Callable[[], object]) -> None:
    """Serve until a signal ends this process; then its handler runs. `look` is called a few times a second."""
    port = ControlPort(cluster, token)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)

    async def run() -> None:
        looking = asyncio.create_task(_repeat(look))
        try:
            await http_server(port).serve([listening])
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    asyncio.run(run())


async def _repeat(look: Callable[[], object]) -> None:
    while True:
        look()
        await asyncio.sleep(LOOK_S)
