"""`ottla record` and `ottla traffic` as a user runs them: stock clients through the proxy, secrets that no file contains, wrong
arguments.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from ottla.testing import Cluster
from tests.cluster.shared import STEADY
from tests.ottla.conftest import ROOT, Cli, command, run_here

pytestmark = pytest.mark.timeout(120)
STOP_S = 30


@contextmanager
def recording(file: Path, to: str, *options: str, code: int = 0) -> Iterator[str]:
    """Run `ottla record` in a process. Yield the address for clients."""
    words = command("record", str(file), "--listen", "127.0.0.1:0", "--to", to, *options)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.fullmatch(r"clients connect to (\S+)\n", line)
        assert found, line + process.stderr.read()
        try:
            yield found[1]
        finally:
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
            assert process.wait(STOP_S) == code, said


def rows(file: Path, *options: str) -> list[dict[str, object]]:
    done = run_here("traffic", str(file), "-o", "json", *options)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_stock_client_writes_and_reads_through_the_proxy_and_all_of_it_is_shown(cli: Cli, tmp_path: Path) -> None:
    file, topic = tmp_path / "f", cli.topic()
    with recording(file, cli.bootstrap) as address:
        producer = Producer({"bootstrap.servers": address, "client.id": "a-producer"})
        producer.produce(topic, b"recorded-value", b"key")
        assert producer.flush(30) == 0
        settings = {"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        found = consumer.poll(30)
        assert found is not None and found.value() == b"recorded-value"
        consumer.close()
    assert oct(file.stat().st_mode)[-3:] == "600"
    assert b"recorded-value" in file.read_bytes()
    every = rows(file)
    assert {"ApiVersions", "Metadata", "Produce", "Fetch", "JoinGroup"} <= {str(row.get("api")) for row in every}
    assert not [row for row in every if "unreadable" in row]
    produced = rows(file, "--api", "produce", "--client", "a-producer", "--topic", topic)
    assert {row["kind"] for row in produced} == {"request", "response"}
    assert all(float(str(row["latency_ms"])) > 0 for row in produced if row["kind"] == "response")
    fetched = rows(file, "--topic", topic, "--api", "Fetch")
    assert any(row["kind"] == "response" for row in fetched), "by the topic's id"
    text = run_here("traffic", str(file), "--api", "produce").out
    assert re.search(r"c\d+ -> Produce v\d+ #\d+ a-producer \{", text)
    cut = tmp_path / "cut"
    cut.write_bytes(file.read_bytes()[:-3])
    done = run_here("traffic", str(cut))
    assert done.code == 0 and "ends within an entry" in done.err


def test_masked_records_keep_their_lengths_and_are_in_no_file(cli: Cli, tmp_path: Path) -> None:
    file, topic = tmp_path / "f", cli.topic()
    with recording(file, cli.bootstrap, "--mask-records") as address:
        producer = Producer({"bootstrap.servers": address, "compression.type": "none"})
        for _ in range(3):
            producer.produce(topic, b"the-value-of-a-customer", b"key-of-a-customer", headers={"h": b"of-a-customer"})
        assert producer.flush(30) == 0
    data = file.read_bytes()
    assert b"of-a-customer" not in data
    assert topic.encode() in data
    assert cli.ok("consume", topic, "--from", "earliest", "-n", "3").count("the-value-of-a-customer") == 3


def test_no_password_of_a_secure_cluster_is_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "f"
    with Cluster(1, secure=True, **STEADY, **{"delegation.token.secret.key": "hunter2-of-tokens"}) as cluster:
        secure = cluster.secure_files
        assert secure is not None
        properties = secure.node_properties("node-1")
        certificate = tmp_path / "node.pem"
        store = Path(properties["ssl.keystore.location"])
        certificate.write_bytes(store.read_bytes())
        tls = tmp_path / "tls.properties"
        tls.write_text(
            f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={secure.ca}\n"
            "ssl.endpoint.identification.algorithm=\n"
        )
        options = ("--config", str(tls), "--cert", str(certificate), "--key", str(certificate))
        with recording(file, cluster.bootstrap, *options) as address:
            settings = cluster.client_settings | {"bootstrap.servers": address}
            producer = Producer(settings)
            producer.produce("secured", b"v")
            assert producer.flush(60) == 0
            words = ("-b", address, "--config", secure.client_file())
            made = run_here("user", "create", "bob", *words, stdin="hunter2-of-bob\n")
            assert made.code == 0, made.err
            token = run_here("token", "create", "-o", "json", *words)
        assert token.code == 0, token.err
        hmac = b64decode(json.loads(token.out)["hmac"])
        passwords = [each.encode() for each in (*secure.passwords.values(), "hunter2-of-bob", "hunter2-of-tokens")]
    data = file.read_bytes()
    assert all(passwords) and len(hmac) == 64
    assert not [each for each in (*passwords, hmac) if each in data]
    apis = ("SaslAuthenticate", "AlterUserScramCredentials", "CreateDelegationToken")
    logins = rows(file, *(word for api in apis for word in ("--api", api)))
    assert {row["api"] for row in logins} == set(apis)
    assert "(masked)" in run_here("traffic", str(file), "--api", "AlterUserScramCredentials").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--listen", "nothing", "--to", "localhost:1"], "--listen"),
        (["--listen", "localhost:0", "--to", "localhost"], "--to"),
        (["--listen", "localhost:0", "--to", "localhost:1", "--cert", "x.pem"], "--cert and --key"),
        (["--listen", "localhost:0", "--to", "localhost:1", "--cert", "no.pem", "--key", "no.pem"], "cannot be used"),
        (["--listen", "192.0.2.1:0", "--to", "localhost:1"], "cannot listen at 192.0.2.1:0"),
    ],
)
def test_wrong_words_of_record_leave_no_file(tmp_path: Path, words: list[str], says: str) -> None:
    done = run_here("record", str(tmp_path / "f"), *words)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert not os.listdir(tmp_path)


def test_a_recording_replaces_no_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("mine")
    done = run_here("record", str(tmp_path / "f"), "--listen", "localhost:0", "--to", "localhost:1")
    assert (done.code, (tmp_path / "f").read_text()) == (2, "mine")
    assert "exists" in done.err


def test_what_is_no_recording_is_not_printed(tmp_path: Path) -> None:
    for data, code in ((b"", 2), (b"\x89PNG\r\n\x1a\n" + bytes(50), 2), (b"{}", 2)):
        (tmp_path / "f").write_bytes(data)
        done = run_here("traffic", str(tmp_path / "f"))
        assert (done.code, done.out) == (code, "")
    assert run_here("traffic", str(tmp_path / "none")).code == 2
    assert "did you mean 'Produce'" in run_here("traffic", str(tmp_path / "f"), "--api", "Prodce").err
