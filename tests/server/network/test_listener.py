"""Listeners: limits on connections, and the address that they advertise to clients."""

from __future__ import annotations

import asyncio
import resource
import socket

import psutil
import pytest

from ottla.server.network import limits, listener
from ottla.server.network.limits import LINES_PER_SECOND, ConnectionLimits
from ottla.server.transport import ARRIVING_PART, descriptors_reserved
from tests.server.tiny_node import heartbeat, tiny_node, until


async def test_connections_above_the_limit_of_one_address_are_rejected() -> None:
    async with tiny_node(limits=ConnectionLimits(connections_per_ip_max=2)) as node:
        first, second = await node.client(), await node.client()
        await until(lambda: len(node.listener.connections) == 2)
        third = await node.client()
        assert await third.is_closed_by_peer()
        first.close()
        await until(lambda: len(node.listener.connections) == 1)
        fourth = await node.client()
        for client in (second, fourth):
            client.send(heartbeat("m", 3))
            assert await client.correlation_ids(1) == [3]
        assert node.listener.rejected == 1


async def test_rejected_connections_write_some_lines_a_second_and_the_next_one_counts_the_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = 5_000
    monkeypatch.setattr("ottla.server.clock.SystemClock.mono_ms", lambda self: now_ms)
    async with tiny_node(limits=ConnectionLimits(connections_per_ip_max=1)) as node:
        await node.client()
        await until(lambda: node.listener.connections)
        for _ in range(LINES_PER_SECOND + 7):
            assert await (await node.client()).is_closed_by_peer()
        lines = [each.getMessage() for each in caplog.records if "Rejecting connection" in each.getMessage()]
        assert len(lines) == LINES_PER_SECOND and node.listener.rejected == LINES_PER_SECOND + 7
        now_ms += 1_000
        assert await (await node.client()).is_closed_by_peer()
        assert "(7 more before it were not written)" in caplog.records[-1].getMessage()


async def test_an_override_gives_one_address_another_limit() -> None:
    only_one = ConnectionLimits(connections_per_ip_max=0, connections_per_ip_overrides={"127.0.0.1": 1})
    async with tiny_node(limits=only_one) as node:
        client = await node.client()
        client.send(heartbeat("m", 1))
        assert await client.correlation_ids(1) == [1]
        assert await (await node.client()).is_closed_by_peer()


async def test_the_total_is_limited_too_and_may_change_while_running() -> None:
    async with tiny_node(limits=ConnectionLimits(connections_max=1)) as node:
        first = await node.client()
        await until(lambda: node.listener.connections)
        assert await (await node.client()).is_closed_by_peer()
        node.limits.connections_max = 2
        second = await node.client()
        second.send(heartbeat("m", 1))
        assert await second.correlation_ids(1) == [1]
        first.close()
        await until(lambda: node.limits.open_total == 1)


async def test_idle_sockets_make_way_for_those_who_say_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UNKNOWN_NS", 0)
    async with tiny_node(limits=ConnectionLimits(room=3)) as node:
        known = await node.client()
        known.send(heartbeat("m", 1))
        assert await known.correlation_ids(1) == [1]
        idle = [await node.client() for _ in range(2)]
        await until(lambda: node.limits.open_total == 3)
        talking = []
        for number in (2, 3):
            talking.append(await node.client())
            talking[-1].send(heartbeat("m", number))
            assert await talking[-1].correlation_ids(1) == [number]
        assert all([await each.is_closed_by_peer() for each in idle])
        assert await (await node.client()).is_closed_by_peer(), "the three others are known"
        known.send(heartbeat("m", 4))
        assert await known.correlation_ids(1) == [4]
        await until(lambda: node.limits.open_total == 3)
        assert (node.listener.refused, node.listener.rejected) == (2, 1)


async def test_a_crowd_at_a_full_node_takes_few_descriptors_before_idle_sockets_have_made_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It accepted 64 a turn, and the first of them displaced an older one three turns later, so 192 descriptors were taken from
    files.
    """
    limit, room = 160, 80
    monkeypatch.setattr(limits, "UNKNOWN_NS", 0)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    async with tiny_node(limits=ConnectionLimits(room=room)) as node:
        idle = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(room)]
        await until(lambda: node.limits.open_total == room)
        idle += [socket.create_connection(("127.0.0.1", node.port)) for _ in range(300)]
        try:
            before = psutil.Process().num_fds()
            async with asyncio.timeout(30):
                while node.listener.accepted < len(idle) or node.limits.open_total > room:
                    await asyncio.sleep(0)
                    assert psutil.Process().num_fds() - before <= limit // ARRIVING_PART
        finally:
            for each in idle:
                each.close()


async def test_who_makes_way_is_not_waited_for_if_it_reads_no_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It kept its descriptor for five seconds, beside that of the connection for which it was closed."""
    monkeypatch.setattr(limits, "UNKNOWN_NS", 0)
    monkeypatch.setattr(listener, "LINGER_MS", 600_000)  # longer than any test takes
    async with tiny_node(limits=ConnectionLimits(room=1)) as node:
        with socket.create_connection(("127.0.0.1", node.port)):
            await until(lambda: node.limits.open_total == 1)
            transport = next(iter(node.listener.connections)).transport
            while not transport.get_write_buffer_size():
                transport.write(bytes(100_000))
            client = await node.client()
            client.send(heartbeat("m", 1))
            assert await client.correlation_ids(1) == [1]
            await until(lambda: node.limits.open_total == 1)


async def test_a_new_connection_has_its_time_before_it_makes_way(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.UNKNOWN_NS >= 1_000_000_000
    monkeypatch.setattr(limits, "UNKNOWN_NS", 600_000_000_000)  # longer than any test takes
    async with tiny_node(limits=ConnectionLimits(room=1)) as node:
        first = await node.client()
        await until(lambda: node.limits.open_total == 1)
        assert await (await node.client()).is_closed_by_peer()
        first.send(heartbeat("m", 1))
        assert await first.correlation_ids(1) == [1]


@pytest.mark.parametrize(("limit", "reserved"), [(1 << 20, 512), (1024, 512), (256, 128)])
def test_files_have_descriptors_that_no_client_takes(limit: int, reserved: int) -> None:
    assert descriptors_reserved(limit) == reserved
    counted = ConnectionLimits(room=limit - reserved, open_total=limit - reserved)
    assert counted.refusal("127.0.0.1", exempt=False, now_ns=0) is not None
    assert counted.refusal("127.0.0.1", exempt=True, now_ns=0) is None, "other nodes still find some"
    counted.open_total = limit - 1
    assert counted.refusal("127.0.0.1", exempt=True, now_ns=0) is not None


async def test_a_node_that_stops_ends_connections_with_unread_requests_without_a_reset() -> None:
    """librdkafka and kafka-python log a reset as an error, and kafka-python a traceback."""
    async with tiny_node() as node:
        with socket.create_connection(("127.0.0.1", node.port)) as client:
            await until(lambda: node.listener.connections)
            client.sendall(heartbeat("m", 1))  # it is not read in this turn of the loop
            await node.listener.stop()
            client.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
            node.listener.abort()
            await until(lambda: not node.listener.connections)


async def test_a_port_in_use_is_an_error_and_not_shared() -> None:
    async with tiny_node() as node:
        with pytest.raises(OSError):
            async with tiny_node(port=node.port):
                pass


async def test_a_connection_is_known_by_both_its_ends() -> None:
    async with tiny_node() as node:
        client = await node.client()
        await until(lambda: node.listener.connections)
        connection = next(iter(node.listener.connections))
        port = client.writer.get_extra_info("sockname")[1]
        assert connection.id == f"127.0.0.1:{node.port}-127.0.0.1:{port}-1"
        gone: list[str] = []
        connection.on_close(lambda: gone.append("gone"))
        client.close()
        await until(lambda: gone)
