"""One response for several nodes: a scrape, and their health."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.processes.admin import MachineAdmin, merge
from ottla.server.admin import JSON_LINES, AdminServer, Answer, HttpRequest, Page
from ottla.server.metrics import Registry
from ottla.server.world import RealWorld

ONE = """# HELP up Is it up.
# TYPE up gauge
up 1.0
# HELP bytes_total Bytes.
# TYPE bytes_total counter
bytes_total{topic="a b{c}",x="\\"1\\" 2"} 7.0
"""
OTHER = """# HELP bytes_total Bytes.
# TYPE bytes_total counter
bytes_total{topic="z"} 3e+06
bytes_total 9
# HELP late Late.
# TYPE late gauge
"""


def test_samples_of_all_nodes_stand_under_one_header_with_their_node() -> None:
    assert merge({1: ONE, 1001: OTHER}).splitlines() == [
        "# HELP up Is it up.",
        "# TYPE up gauge",
        'up{node_id="1"} 1.0',
        "# HELP bytes_total Bytes.",
        "# TYPE bytes_total counter",
        'bytes_total{node_id="1",topic="a b{c}",x="\\"1\\" 2"} 7.0',
        'bytes_total{node_id="1001",topic="z"} 3e+06',
        'bytes_total{node_id="1001"} 9',
        "# HELP late Late.",
        "# TYPE late gauge",
    ]


def test_prometheus_can_read_it() -> None:
    families = {each.name: each for each in text_string_to_metric_families(merge({1: ONE, 1001: OTHER}))}
    assert [(s.labels["node_id"], s.value) for s in families["bytes"].samples] == [
        ("1", 7),
        ("1001", 3e6),
        ("1001", 9),
    ]
    assert merge({}) == ""


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_process_that_has_died_fails_the_health_of_the_machine_by_name(path: str) -> None:
    world: Any = None
    dead: Any = SimpleNamespace(node_id=1002, name="broker-2", why_down="ended (SIGKILL), starts again in 0.5 s")
    answer = await MachineAdmin(world, "127.0.0.1", 0, [dead]).answer(path)
    assert answer.status == 503
    assert b"[-] node 1002 (broker-2): ended (SIGKILL), starts again in 0.5 s" in answer.body


async def test_the_stories_of_all_processes_come_together_and_for_this_machine_alone() -> None:
    real = RealWorld(asyncio.get_running_loop())
    asked: list[str] = []

    def page(text: bytes, status: int = 200) -> Page:
        def answer(request: HttpRequest) -> Answer:
            asked.append(request.query)
            return Answer(status, text)

        return answer

    def server(answer: Page) -> AdminServer:
        return AdminServer(real.world, "127.0.0.1", 0, Registry(), lambda: (), lambda: (), {"/story": answer})

    servers = [server(page(b"one\n")), server(page(b"two\n")), server(page(b"off\n", 403))]
    for each in servers:
        await each.start()
    processes: list[Any] = [
        SimpleNamespace(node_id=number, why_down=None, admin_port=each.port) for number, each in enumerate(servers)
    ]
    machine = MachineAdmin(real.world, "0.0.0.0", 0, processes)
    request = HttpRequest("/story", head=False, keep=False, query="group=a%20b", peer="127.0.0.1")
    assert await machine.respond(request) == Answer(200, b"one\ntwo\n", JSON_LINES)
    assert asked == ["group=a%20b"] * 3
    assert (await MachineAdmin(real.world, "0.0.0.0", 0, processes[2:]).respond(request))[:2] == (403, b"off\n")
    assert (await machine.respond(request._replace(peer="10.0.0.7"))).status == 403
    assert (await machine.respond(request._replace(host="rebound.example.com"))).status == 403
    assert (await MachineAdmin(real.world, "0.0.0.0", 0, []).respond(request)).status == 503
    assert len(asked) == 4
    for each in servers:
        await each.stop()
    await real.close()
