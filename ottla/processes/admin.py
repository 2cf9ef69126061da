"""The admin listener of a machine: it serves `/healthz`, `/readyz` and `/metrics` for all its processes.

Each process has its own admin listener on a loopback port. A request here is passed on to these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla.server.admin import JSON_LINES, AdminServer, Answer, Check, HttpRequest, is_local, verdict
from ottla.server.metrics import CONTENT_TYPE, Registry
from ottla.server.world import World


class _Family:
    """One metric: its HELP and TYPE, which may occur only once, and the samples from all nodes."""

    def __init__(self) -> None:
        self.header: list[str] = []
        self.samples: list[str] = []


def merge(texts: Mapping[int, str]) -> str:
    """Return one text of Prometheus from those of several nodes: every sample gets the label `node_id`.

    The families are in the order in which they first occur. A family's samples are the lines after its TYPE.
    """
    families: dict[str, _Family] = {}
    for node_id, text in texts.items():
        label = f'node_id="{node_id}"'
        family = families.setdefault("", _Family())
        for line in text.splitlines():
            if line.startswith("#"):
                words = line.split(" ", 3)
                family = families.setdefault(words[2], _Family())
                if not any(known.startswith(f"# {words[1]} ") for known in family.header):
                    family.header.append(line)
            elif line:
                family.samples.append(_labelled(line, label))
    lines = [line for family in families.values() for line in (*family.header, *family.samples)]
    return "".join(f"{line}\n" for line in lines)


def _labelled(sample: str, label: str) -> str:
    name, brace, rest = sample.partition("{")
    if brace:
        return f"{name}{{{label},{rest}"
    name, _, value = sample.partition(" ")
    return f"{name}{{{label}}} {value}"


#: The time limit of a response. It is shorter than a few attempts of an orchestrator's probe, and longer than the delays of a
#: busy event loop.
ANSWER_TIMEOUT_S = 2.0
#: A scrape is made in slices on the process's event loop (server/metrics.py); Prometheus itself waits for 10 s.
SCRAPE_TIMEOUT_S = 5.0


class Process(Protocol):
    """The interface to a process that the admin listener needs."""

    @property
    def node_id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def admin_port(self) -> int: ...
    @property
    def restarts(self) -> int: ...
    @property
    def why_down(self) -> str | None:
        """Return the reason why the process is down, or None while it runs."""


class _Response(NamedTuple):
    status: int
    text: str


class MachineAdmin(AdminServer):
    """The admin server of the machine. It responds with 200 only if all processes do."""

    def __init__(self, world: World, host: str, port: int, processes: Sequence[Process]) -> None:
        super().__init__(world, host, port, Registry(), lambda: (), lambda: ())
        self._processes = processes

    async def answer(self, path: str) -> Answer:
        if path in ("/healthz", "/readyz"):
            return verdict(await asyncio.gather(*(_check(each, path) for each in self._processes)))
        if path == "/metrics":
            return Answer(200, await self._merged(), CONTENT_TYPE)
        return await super().answer(path)

    async def respond(self, request: HttpRequest) -> Answer:
        """Answer a request.

        Stories are only for this machine: the processes cannot check that, because to them each request comes from here.
        """
        if request.path != "/story":
            return await super().respond(request)
        if not is_local(request, self.host):
            return Answer(403, b"stories of a machine's processes are for this machine alone\n")
        page = f"/story?{request.query}"
        found = await asyncio.gather(*(_ask(each, page, ANSWER_TIMEOUT_S) for each in self._processes))
        answers = [each for each in found if each is not None]
        if stories := [each.text for each in answers if each.status == 200]:
            return Answer(200, "".join(stories).encode(), JSON_LINES)
        status, text = answers[0] if answers else (503, "no process answers\n")
        return Answer(status, text.encode())

    async def _merged(self) -> bytes:
        """Return the metrics of the processes that respond. `ottla_process_up` says which ones do not."""
        answers = await asyncio.gather(*(_ask(each, "/metrics", SCRAPE_TIMEOUT_S) for each in self._processes))
        texts = {
            each.node_id: found.text
            for each, found in zip(self._processes, answers, strict=True)
            if found is not None and found.status == 200
        }
        return (_own_metrics(self._processes, texts.keys()) + merge(texts)).encode()


def _own_metrics(processes: Sequence[Process], up: Collection[int]) -> str:
    lines = [
        "# HELP ottla_process_up Whether this process of the machine answers.",
        "# TYPE ottla_process_up gauge",
        *(f'ottla_process_up{{node_id="{each.node_id}"}} {int(each.node_id in up)}' for each in processes),
        "# HELP ottla_process_restarts_total How often the supervisor started this process again.",
        "# TYPE ottla_process_restarts_total counter",
        *(f'ottla_process_restarts_total{{node_id="{each.node_id}"}} {each.restarts}' for each in processes),
    ]
    return "".join(f"{line}\n" for line in lines)


async def _check(process: Process, path: str) -> Check:
    name = f"node {process.node_id} ({process.name})"
    if process.why_down is not None:
        return Check(name, False, process.why_down)
    found = await _ask(process, path, ANSWER_TIMEOUT_S)
    if found is None:
        return Check(name, False, "does not answer")
    failed = [line[4:] for line in found.text.splitlines() if line.startswith("[-] ")]
    return Check(name, found.status == 200, "; ".join(failed))


async def _ask(process: Process, path: str, timeout_s: float) -> _Response | None:
    """Return the response of a process, or None if it does not come in time."""
    if process.why_down is not None:
        return None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection("127.0.0.1", process.admin_port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                data = await reader.read(-1)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    head, _, body = data.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    return _Response(int(words[1]), body.decode()) if len(words) == 3 else None
