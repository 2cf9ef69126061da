"""`ottla doctor` against a node, and against ports that are no broker."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.cli.doctor import connection, findings
from ottla.cli.doctor.record import PREFIX
from ottla.client.cluster import ClusterClient
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.ottla.conftest import Cli, run_here


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy for seconds must not look like a broker that cannot be reached."""
    monkeypatch.setattr(connection, "STEP_S_MAX", 30.0)


def found(*arguments: str) -> tuple[int, list[str]]:
    done = run_here("doctor", "-o", "json", *arguments)
    return done.code, [json.loads(line)["finding"] for line in done.out.splitlines()]


@contextmanager
def listening(reply: bytes) -> Iterator[str]:
    """Listen, send `reply` to each connection, and close."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    client.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_a_healthy_node_has_only_the_warnings_of_a_single_one(cli: Cli) -> None:
    topic = cli.topic()
    # An id that has never begun a transaction must not count as open since 1970.
    Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": f"{topic}-id"}).init_transactions()
    assert not cli.rows("txn", "list", "--open-for", "0.001")
    done = cli("doctor", "--topic", topic)
    assert done.code == 0, done.err
    for line in (
        "takes connections and speaks Kafka",
        f"ok: topic {topic} may be read and written",
        "ok: a record was written in",
    ):
        assert line in done.err
    rows = cli.rows("doctor", "--read-only")
    assert {row["severity"] for row in rows} <= {findings.WARNING, findings.ADVICE}
    assert {"quorum-of-one", "one-replica"} <= {row["finding"] for row in rows}
    assert "transaction-open" not in {row["finding"] for row in rows}
    assert not [row for row in cli.rows("topic", "list") if str(row["topic"]).startswith(PREFIX)]


def test_a_topic_that_is_deleted_while_the_doctor_reads_is_no_finding(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the fix the command gave advice about its own topic, already deleted, which the broker still had in its
    metadata.
    """
    metadata = ClusterClient.metadata

    async def a_moment_ago(cluster: ClusterClient, *arguments: Any, **options: Any) -> MetadataResponse:
        response = await metadata(cluster, *arguments, **options)
        part = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        response.topics.append(MetadataResponseTopic(name="just-deleted", partitions=[part]))
        return response

    monkeypatch.setattr(ClusterClient, "metadata", a_moment_ago)
    rows = cli.rows("doctor", "--read-only")
    assert "not-known" not in {row["finding"] for row in rows}
    assert not [row for row in rows if "just-deleted" in str(row["place"])]


def test_the_way_to_a_cluster_ends_at_the_step_that_fails(cli: Cli) -> None:
    assert found("-b", "no-such-host.invalid:9092") == (findings.NO_ADDRESS, ["name-not-resolved"])
    assert found("-b", "127.0.0.1:1") == (findings.NO_CONNECTION, ["not-reachable"])
    for reply in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x7f\xff\xff\xff" * 100):
        with listening(reply) as address:
            assert found("-b", address) == (findings.NO_PROTOCOL, ["no-kafka"]), reply
    code, names = found("-b", f"127.0.0.1:1,{cli.bootstrap}", "--read-only")
    assert code == findings.NO_CONNECTION and names[0] == "not-reachable" and "quorum-of-one" in names


def test_a_name_with_an_address_at_which_nothing_listens_is_a_warning(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener of localhost only at ::1 cannot be reached by clients that prefer 127.0.0.1."""

    async def resolved(self: object, host: str, port: int) -> list[str]:
        return ["127.0.0.1", "127.0.0.9"]

    monkeypatch.setattr(connection.ConnectionsLook, "_resolved", resolved)
    rows = [row for row in cli.rows("doctor", "--read-only") if row["finding"] == "address-not-reachable"]
    assert {row["severity"] for row in rows} == {"warning"}
    assert all("127.0.0.9: Connection refused" in str(row) for row in rows)


def test_a_topic_that_is_not_there(cli: Cli) -> None:
    done = cli("doctor", "--read-only", "--topic", "no-such-topic")
    assert done.code == findings.NO_PERMISSION and "no-such-topic" in done.out and "ottla topic list" in done.out


@pytest.mark.parametrize("output", ["table", "yaml"])
def test_findings_name_their_remedy_in_each_form(cli: Cli, output: str) -> None:
    assert "three controllers (docs/OPERATIONS.md)" in cli.ok("doctor", "--read-only", "-o", output)
