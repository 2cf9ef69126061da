"""Several instances: one leads, the others forward to it, and no id is lost or repeated when the leader dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.registry.client import RegistryClient, RegistryFailed
from ottla.registry.election import Identity, assign, assigned_from, identity_from
from ottla.registry.members import check_secret
from tests.ottla.conftest import Cli
from tests.ottla.registry.instances import SHORT_SESSION_MS, Instance, Registries, Writers, judge, schema
from tests.ottla.registry.memory import members

#: Each test that shares the instances has its own range of schema numbers.
SCHEMAS, FORWARDED, FENCED, DEATH = 40, 0, 100, 200


def newest_id(instance: Instance) -> int:
    rows: Any = instance.ask("GET", "/schemas")
    return max((int(row["id"]) for row in rows), default=0)


def test_what_an_instance_forwards_it_can_read_at_once(registries: Registries) -> None:
    registries.at_least(2)
    leader, (other, *_) = registries.leader()
    for index in range(FORWARDED, FORWARDED + 5):
        made: Any = other.ask("POST", f"/subjects/s{index}/versions", schema(index))
        assert other.ask("GET", f"/subjects/s{index}/versions") == [1]
        found: Any = other.ask("GET", f"/schemas/ids/{made['id']}")
        assert json.loads(found["schema"])["name"] == f"F{index}"
    assert other.rejected("POST", "/subjects/s1/versions", {"schema": "{"}) == 42201
    assert leader.ask("DELETE", "/subjects/s1") == [1]


@pytest.fixture(scope="module")
def mortal(cli: Cli) -> Iterator[Registries]:
    """Instances whose absence is noticed soon."""
    made = Registries(cli.bootstrap, session_ms=SHORT_SESSION_MS)
    yield made
    made.stop()


def test_a_leader_that_another_followed_cannot_write(mortal: Registries) -> None:
    """A leader that was stopped for longer than its session continues with a client's write, and the partition rejects it."""
    mortal.at_least(2)
    leader, (other, *_) = mortal.leader()
    first = newest_id(leader) + 1
    os.kill(leader.process.pid, signal.SIGSTOP)
    try:
        writers = Writers(lambda: [other.url], 1, FENCED, FENCED + 3)
        writers.join()
    finally:
        os.kill(leader.process.pid, signal.SIGCONT)
    again = Writers(lambda: [leader.url], 1, FENCED + 3, FENCED + 4)
    again.join()
    writers.given |= again.given
    assert judge(writers, other, first) == []


@pytest.mark.chaos
def test_the_death_of_the_leader_gives_no_id_twice_and_loses_none(mortal: Registries) -> None:
    mortal.at_least(2)
    leader, (other, *_) = mortal.leader()
    first = newest_id(leader) + 1
    writers = Writers(lambda: [leader.url, other.url], 2, DEATH, DEATH + SCHEMAS)
    writers.wait(SCHEMAS // 4)
    leader.kill()
    writers.join()
    # A further instance has only the topic.
    assert judge(writers, mortal.start(), first) == []


def test_the_topic_is_compacted_and_has_one_partition(cli: Cli, registries: Registries) -> None:
    registries.at_least(1)
    row = cli.rows("topic", "list")
    assert [each["partitions"] for each in row if each["topic"] == registries.topic] == [1]
    configs = cli.ok("config", "get", "topic", registries.topic)
    assert "cleanup.policy" in configs and "compact" in configs


@pytest.fixture(scope="module")
def secured(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Instance], str]]:
    """Two instances with logins, permissions and TLS, and the file of their certificate."""
    folder = tmp_path_factory.mktemp("secured")
    users, acl, certificate, key = (str(folder / name) for name in ("users", "acl", "cert.pem", "key.pem"))
    secret = folder / "secret"
    secret.write_text("an instance knows the others by it\n")
    Path(users).write_text("alice: secret\nroot: top\n")
    Path(acl).write_text("alice orders-* read,write\nroot * all\n")
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*made, "-out", certificate, "-keyout", key], check=True, capture_output=True)
    options = (
        "--users",
        users,
        "--acl",
        acl,
        "--cert",
        certificate,
        "--key",
        key,
        "--ca",
        certificate,
        "--secret-file",
        str(secret),
    )
    registries = Registries(cli.bootstrap)
    yield [registries.start(*options), registries.start(*options)], certificate
    registries.stop()


def test_logins_and_permissions_hold_through_forwarding(secured: tuple[list[Instance], str]) -> None:
    instances, certificate = secured

    def client(url: str, login: str = "") -> RegistryClient:
        return RegistryClient(url.replace("://", f"://{login}"), ca_file=certificate, timeout_s=60)

    for each in instances:
        with pytest.raises(RegistryFailed) as caught:
            client(each.url).subjects()
        assert caught.value.code == 401
        alice = client(each.url, "alice:secret@")
        alice.request("POST", "/subjects/orders-value/versions", schema(0))
        with pytest.raises(RegistryFailed) as caught:
            alice.request("POST", "/subjects/stock-value/versions", schema(1))
        assert caught.value.code == 40301
        client(each.url, "root:top@").request("POST", "/subjects/stock-value/versions", schema(1))
        assert alice.subjects() == ["orders-value"]
        with pytest.raises(RegistryFailed, match="Schema 2 not found"):
            alice.schema(2)


def test_https_has_the_certificate_that_clients_check(secured: tuple[list[Instance], str]) -> None:
    for each in secured[0]:
        assert each.url.startswith("https://")
        with pytest.raises(RegistryFailed, match="CERTIFICATE_VERIFY_FAILED"):
            RegistryClient(each.url).subjects()


def test_a_topic_of_several_partitions_is_no_registrys_topic(cli: Cli) -> None:
    done = cli("registry", "--listen", "127.0.0.1:0", "--topic", cli.topic(partitions=2))
    assert done.code == 1
    assert "has 2 partitions" in done.err


def test_a_session_that_the_brokers_do_not_allow_ends_the_command(cli: Cli) -> None:
    done = cli("registry", "--listen", "127.0.0.1:0", "--topic", cli.topic(), "--session-timeout-ms", "1")
    assert done.code == 1
    assert "INVALID_SESSION_TIMEOUT" in done.err and "group.min.session.timeout.ms" in done.err
    assert done.out == ""


def test_the_eligible_instance_with_the_smallest_address_leads_unless_one_leads_already() -> None:
    a, b, c = (Identity("http", "h", port) for port in (1, 2, 3))
    assert assign({"x": b, "y": a})["master"] == "y"
    assert assign({"x": Identity("http", "h", 2, leads=True), "y": a})["master"] == "x"
    assert assign({"x": Identity("http", "h", 1, eligible=False), "y": c})["master"] == "y"
    assert "master" not in assign({"x": Identity("http", "h", 1, eligible=False)})
    # If two instances have the same address, only the one that does not lead has an error.
    assert assign({"x": a, "y": a}) == assign({"x": a}) | {"master": "x"}
    data = json.dumps(assign({"x": a})).encode()
    assert assigned_from(data) == ("x", a)


def test_a_member_without_the_secret_neither_leads_nor_displaces_a_leader() -> None:
    secret, other = members(b"s" * 16), members(b"o" * 16)
    honest = Identity("http", "h", 2, leads=True)
    rogue = Identity("http", "h", 1, leads=True)
    for false in (rogue, rogue.proven(other), replace(rogue, proof=honest.proven(secret).proof)):
        made = assign({"r": false, "x": honest.proven(secret)}, secret)
        assert made["master"] == "x"
        with pytest.raises(ValueError, match="does not know the instances' secret"):
            assigned_from(json.dumps(assign({"r": false})).encode(), secret)
    assert assigned_from(json.dumps(made).encode(), secret) == ("x", honest)
    with pytest.raises(ValueError, match="16 bytes"):
        check_secret(b"short")


def test_the_metadata_of_a_member_is_confluents() -> None:
    data = b'{"version":1,"host":"sr1","port":8081,"master_eligibility":true,"scheme":"http","leader":false}'
    assert identity_from(data).url == "http://sr1:8081"
    assert json.dumps(identity_from(data).json(), separators=(",", ":")).encode() == data
    for wrong in (b"", b"{}", b"[]", b'{"host":"a"}'):
        with pytest.raises(ValueError, match=r"."):
            identity_from(wrong)
