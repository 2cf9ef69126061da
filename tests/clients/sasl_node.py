"""A node, as a process, whose clients log in by SASL."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from ottla.cli.shims import storage
from tests.ports import free_ports

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
READY = "Kafka Server started"
#: The limit for a start, which takes 0.7 s; under a load of 40 one took more than 30 s.
START_SECONDS_MAX = 90
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class SaslNode(NamedTuple):
    plaintext: str
    sasl: str
    log: Path


@contextmanager
def started(directory: Path, more: Mapping[str, str], *format_options: str) -> Iterator[SaslNode]:
    """Run a node with a listener for clients that log in, one for the test itself, and `more` properties.

    With `format_options` its directory is formatted before."""
    plaintext, controller, sasl = free_ports(3)
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{plaintext},CONTROLLER://127.0.0.1:{controller},CLIENTS://127.0.0.1:{sasl}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN_LOGIN} username="admin" password="planted-admin" '
        'user_admin="planted-admin" user_alice="planted-alice" user_bob="planted-bob";',
        **more,
    }
    file, log = directory / "server.properties", directory / "log"
    file.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
    if format_options:
        assert storage.main(["format", "-t", CLUSTER_ID, "-c", str(file), *format_options]) == 0
    with log.open("w") as output:
        process = subprocess.Popen([sys.executable, "-m", "ottla", "start", str(file)], stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while READY not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        made = SaslNode(f"127.0.0.1:{plaintext}", f"127.0.0.1:{sasl}", log)
        add_user(made, "bob", b"planted-bob")
        yield made
    except BaseException:
        # Killed, because it may not have set up its signals: an interrupted start ends with 130, which would hide the reason.
        process.kill()
        process.wait()
        raise
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0, f"the node did not stop cleanly: {log.read_text()}"


def add_user(node: SaslNode, user: str, password: bytes) -> None:
    admin = AdminClient({"bootstrap.servers": node.plaintext})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password)
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(30)
