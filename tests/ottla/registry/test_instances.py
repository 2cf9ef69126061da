"""Several instances: one leads, the others forward to it, and the death of the leader loses and repeats no id."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from ottla.registry.client import RegistryClient, RegistryFailed
from ottla.registry.election import Identity, assign, assigned_from, identity_from
from tests.ottla.registry.conftest import Instance, Registries

SCHEMAS = 40
REGISTER_S_MAX = 90


def schema(index: int) -> dict[str, str]:
    return {"schema": json.dumps({"type": "fixed", "name": f"F{index}", "size": index + 1})}


def register(urls: list[str], index: int) -> int:
    """Register a schema at any instance, as a client does: again and again until one answers."""
    until = time.monotonic() + REGISTER_S_MAX
    while True:
        for url in urls:
            try:
                row: Any = RegistryClient(url, timeout_s=20).request(
                    "POST", f"/subjects/s{index}/versions", schema(index)
                )
                return int(row["id"])
            except (RegistryFailed, OSError):
                if time.monotonic() > until:
                    raise


def leader_of(first: Instance, second: Instance) -> tuple[Instance, Instance]:
    """The instance that leads, and the other one: the answer of a leader to a write has no forwarding."""
    for one, other in ((first, second), (second, first)):
        try:
            body = json.dumps({"compatibility": "NONE"}).encode()
            forwarded = urllib.request.Request(f"{one.url}/config/probe", body, {"X-Forward": "true"}, method="PUT")
            urllib.request.urlopen(forwarded, timeout=60).close()
            return one, other
        except urllib.error.HTTPError as fault:
            assert json.loads(fault.read())["error_code"] == 50004
    raise AssertionError("no instance leads")


def test_what_an_instance_forwards_it_can_read_at_once(registries: Registries) -> None:
    leader, other = leader_of(registries.start(), registries.start())
    for index in range(5):
        made: Any = other.ask("POST", f"/subjects/s{index}/versions", schema(index))
        assert other.ask("GET", f"/subjects/s{index}/versions") == [1]
        found: Any = other.ask("GET", f"/schemas/ids/{made['id']}")
        assert json.loads(found["schema"])["name"] == f"F{index}"
    assert other.rejected("POST", "/subjects/s1/versions", {"schema": "{"}) == 42201
    assert leader.ask("DELETE", "/subjects/s1") == [1]


def test_the_death_of_the_leader_gives_no_id_twice_and_loses_none(registries: Registries) -> None:
    first, second = registries.start(), registries.start()
    leader, other = leader_of(first, second)
    given: dict[int, int] = {}

    def write(begin: int) -> None:
        for index in range(begin, SCHEMAS, 2):
            given[index] = register([leader.url, other.url], index)

    threads = [threading.Thread(target=write, args=(begin,)) for begin in (0, 1)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + REGISTER_S_MAX
    while len(given) < SCHEMAS // 4 and time.monotonic() < until:
        time.sleep(0.01)
    leader.kill()
    for thread in threads:
        thread.join()
    assert sorted(given.values()) == list(range(1, SCHEMAS + 1))
    # A third instance has only the topic.
    third = registries.start()
    for index, schema_id in given.items():
        found: Any = third.ask("GET", f"/schemas/ids/{schema_id}")
        assert json.loads(found["schema"])["name"] == f"F{index}"


def test_the_topic_is_compacted_and_has_one_partition(registries: Registries) -> None:
    registries.start()
    row = registries.cli.rows("topic", "list")
    assert [each["partitions"] for each in row if each["topic"] == registries.topic] == [1]
    configs = registries.cli.ok("config", "get", "topic", registries.topic)
    assert "cleanup.policy" in configs and "compact" in configs


def test_logins_and_permissions_hold_through_forwarding(registries: Registries, tmp_path: Path) -> None:
    users, acl = tmp_path / "users", tmp_path / "acl"
    users.write_text("alice: secret\nroot: top\n")
    acl.write_text("alice orders-* read,write\nroot * all\n")
    secured = ("--users", str(users), "--acl", str(acl))
    first, second = registries.start(*secured), registries.start(*secured)
    for each in (first, second):
        host = each.url.removeprefix("http://")
        assert each.rejected("GET", "/subjects") == 401
        alice = RegistryClient(f"http://alice:secret@{host}", timeout_s=60)
        alice.request("POST", "/subjects/orders-value/versions", schema(0))
        with pytest.raises(RegistryFailed) as caught:
            alice.request("POST", "/subjects/stock-value/versions", schema(1))
        assert caught.value.code == 40301
        root = RegistryClient(f"http://root:top@{host}", timeout_s=60)
        root.request("POST", "/subjects/stock-value/versions", schema(1))
        assert alice.subjects() == ["orders-value"]
        with pytest.raises(RegistryFailed, match="Schema 2 not found"):
            alice.schema(2)


def test_https(registries: Registries, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*made, "-out", str(certificate), "-keyout", str(key)], check=True, capture_output=True)
    options = ("--cert", str(certificate), "--key", str(key), "--ca", str(certificate))
    for each in (registries.start(*options), registries.start(*options)):
        assert each.url.startswith("https://")
        client = RegistryClient(each.url, ca_file=str(certificate), timeout_s=60)
        client.request("POST", "/subjects/s/versions", schema(0))
        with pytest.raises(RegistryFailed, match="CERTIFICATE_VERIFY_FAILED"):
            RegistryClient(each.url).subjects()


def test_a_topic_of_several_partitions_is_no_registrys_topic(registries: Registries) -> None:
    registries.topic = registries.cli.topic(partitions=2)
    done = registries.cli("registry", "--listen", "127.0.0.1:0", "--topic", registries.topic)
    assert done.code == 1
    assert "has 2 partitions" in done.err


def test_the_eligible_instance_with_the_smallest_address_leads_unless_one_leads_already() -> None:
    a, b, c = (Identity("http", "h", port) for port in (1, 2, 3))
    assert assign({"x": b, "y": a})["master"] == "y"
    assert assign({"x": Identity("http", "h", 2, leads=True), "y": a})["master"] == "x"
    assert assign({"x": Identity("http", "h", 1, eligible=False), "y": c})["master"] == "y"
    assert "master" not in assign({"x": Identity("http", "h", 1, eligible=False)})
    assert assign({"x": a, "y": a})["error"] == 1
    data = json.dumps(assign({"x": a})).encode()
    assert assigned_from(data) == ("x", a)
    with pytest.raises(ValueError, match="two instances"):
        assigned_from(json.dumps(assign({"x": a, "y": a})).encode())


def test_the_metadata_of_a_member_is_confluents() -> None:
    data = b'{"version":1,"host":"sr1","port":8081,"master_eligibility":true,"scheme":"http","leader":false}'
    assert identity_from(data).url == "http://sr1:8081"
    assert json.dumps(identity_from(data).json(), separators=(",", ":")).encode() == data
    for wrong in (b"", b"{}", b"[]", b'{"host":"a"}'):
        with pytest.raises(ValueError, match=r"."):
            identity_from(wrong)


def test_a_leader_that_another_followed_cannot_write(registries: Registries) -> None:
    """A leader that was stopped for longer than its session goes on with a client's write: the partition rejects it."""
    leader, other = leader_of(registries.start(), registries.start())
    os.kill(leader.process.pid, signal.SIGSTOP)
    try:
        ids = [register([other.url], index) for index in range(3)]
    finally:
        os.kill(leader.process.pid, signal.SIGCONT)
    ids.append(register([leader.url], 3))
    assert sorted(ids) == [1, 2, 3, 4]
