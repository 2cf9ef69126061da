"""The variables of cp-schema-registry's image: the effect of each, and the notes about those that nothing reads."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.application import parsed
from ottla.cli.commands import container
from ottla.cli.commands import registry as command
from ottla.container.schema_registry import registry_start
from ottla.container.settings import ContainerError
from tests.ottla.conftest import ROOT, Cli

#: The variables of compose files, without the prefix.
KAFKA = {"KAFKASTORE_BOOTSTRAP_SERVERS": "kafka:9092"}
DEFAULTS = {"listen": "0.0.0.0:8081", "topic": "_schemas", "group": "schema-registry", "compatibility": "backward"}


def started(environment: dict[str, str]) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Return the arguments of `ottla registry` for the variables, the properties of its connections, and the notes."""
    start = registry_start(environment)
    _, chosen = parsed(command.app, start.arguments)
    chosen.apply_defaults()
    given = dict(chosen.arguments)
    given |= {field: value for group in given.values() if is_dataclass(group) for field, value in vars(group).items()}
    return given | {"bootstrap": given["connection"].bootstrap}, start.properties, start.notes


def prefixed(given: dict[str, str]) -> dict[str, str]:
    return {f"SCHEMA_REGISTRY_{name}": value for name, value in given.items()}


CASES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "the least": ({}, {"bootstrap": "kafka:9092", "advertise": None}),
    "a host's name": ({"HOST_NAME": "schema-registry"}, {"advertise": "schema-registry:8081"}),
    "another port": (
        {"HOST_NAME": "sr", "LISTENERS": "http://0.0.0.0:8085/"},
        {"listen": "0.0.0.0:8085", "advertise": "sr:8085"},
    ),
    "IPv6": ({"LISTENERS": "http://[::]:8081"}, {"listen": "[::]:8081"}),
    "no host": ({"LISTENERS": "http://:8081"}, {"listen": "0.0.0.0:8081"}),
    "servers with protocols": (
        {"KAFKASTORE_BOOTSTRAP_SERVERS": "PLAINTEXT://a:1, SSL://b:2,PLAINTEXT://c:3"},
        {"bootstrap": "a:1,c:3"},
    ),
    "topic and group": (
        {"KAFKASTORE_TOPIC": "_mine", "SCHEMA_REGISTRY_GROUP_ID": "us"},
        {"topic": "_mine", "group": "us"},
    ),
    "a group by the short name": ({"GROUP_ID": "us"}, {"group": "us"}),
    "a level": ({"SCHEMA_COMPATIBILITY_LEVEL": "FULL_TRANSITIVE"}, {"compatibility": "full_transitive"}),
    "a level by the old name": ({"AVRO_COMPATIBILITY_LEVEL": "none"}, {"compatibility": "none"}),
    "a follower": ({"LEADER_ELIGIBILITY": "false"}, {"leader": False}),
    "a follower by the old name": ({"MASTER_ELIGIBILITY": "false"}, {"leader": False}),
    "a session": ({"KAFKAGROUP_SESSION_TIMEOUT_MS": "6000"}, {"session_timeout_ms": 6000}),
    "the listener by which instances reach each other": ({"INTER_INSTANCE_LISTENER_NAME": "HTTP"}, {}),
    "how instances reach each other": ({"SCHEMA_REGISTRY_INTER_INSTANCE_PROTOCOL": "http"}, {}),
    "no logins": ({"AUTHENTICATION_METHOD": "NONE", "SSL_CLIENT_AUTH": "false"}, {"users": None}),
    "https": (
        {"LISTENERS": "https://0.0.0.0:8081", "INTER_INSTANCE_PROTOCOL": "https", "SSL_KEYSTORE_LOCATION": "/k.pem",
         "SSL_KEYSTORE_TYPE": "PEM", "SSL_TRUSTSTORE_LOCATION": "/ca.pem", "SSL_TRUSTSTORE_TYPE": "PEM"},
        {"cert": "/k.pem", "key": "/k.pem", "ca": "/ca.pem"},
    ),
    "an empty variable": ({"KAFKASTORE_TOPIC": ""}, {"topic": "_schemas"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_variable_has_its_effect_and_nothing_is_said(name: str) -> None:
    given, expected = CASES[name]
    found, properties, notes = started(prefixed(KAFKA | given))
    assert {key: found[key] for key in DEFAULTS | expected} == DEFAULTS | expected
    assert (properties, notes) == ({}, [])


def test_the_login_at_the_brokers_is_that_of_the_properties() -> None:
    module = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
    found, properties, notes = started(
        prefixed(
            {
                "KAFKASTORE_BOOTSTRAP_SERVERS": "SASL_SSL://kafka:9093",
                "KAFKASTORE_SECURITY_PROTOCOL": "SASL_SSL",
                "KAFKASTORE_SASL_MECHANISM": "PLAIN",
                "KAFKASTORE_SASL_JAAS_CONFIG": module,
                "KAFKASTORE_SSL_TRUSTSTORE_LOCATION": "/ca.pem",
                "KAFKASTORE_SSL_TRUSTSTORE_TYPE": "PEM",
            }
        )
    )
    assert found["bootstrap"] == "kafka:9093" and notes == []
    assert properties == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": module,
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
    }


def test_what_is_not_known_is_named_in_one_line_and_what_kubernetes_adds_in_another() -> None:
    unknown = {"HEAP_OPTS": "-Xmx1g", "DEBUG": "true", "KAFKASTORE_TOPIC_REPLICATION_FACTOR": "1", "JMX_PORT": "9999"}
    links = {"SCHEMA_REGISTRY_SERVICE_HOST": "10.0.0.1", "SCHEMA_REGISTRY_PORT": "tcp://10.0.0.1:8081"}
    _, _, notes = started(prefixed(KAFKA | unknown) | links | {"HOSTNAME": "pod-1"})
    assert len(notes) == 2 and "the Service SCHEMA_REGISTRY " in notes[0]
    assert notes[1] == "not known here, and not read: " + ", ".join(sorted(prefixed(unknown)))


def test_logins_are_the_file_of_ottla_registry() -> None:
    files = {"OTTLA_REGISTRY_USERS": "/users", "OTTLA_REGISTRY_ACL": "/acl", "OTTLA_REGISTRY_SECRET_FILE": "/secret"}
    found, _, _ = started(prefixed(KAFKA | {"AUTHENTICATION_METHOD": "BASIC"}) | files)
    assert (found["users"], found["acl"], found["secret_file"]) == ("/users", "/acl", "/secret")


def test_brokers_are_waited_for_as_long_as_the_image_does() -> None:
    servers = {"KAFKASTORE_BOOTSTRAP_SERVERS": "a:1,[::1]:2,odd"}
    assert registry_start(prefixed(servers))[3:] == ([("a", 1), ("::1", 2)], 40)
    assert registry_start(prefixed(servers | {"CUB_KAFKA_TIMEOUT": "300"})).wait_s == 300


def test_a_broker_that_comes_late_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))
        address = late.getsockname()
        opened = threading.Timer(0.2, late.listen)
        opened.start()
        container._wait_for_brokers([address], 60)
        opened.join()
        assert (
            capsys.readouterr().out == "===> Note: no broker takes connections yet; they are waited for, 60 s at most\n"
        )
        container._wait_for_brokers([address], 0)
        container._wait_for_brokers([], 60)


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "no broker": ({"KAFKASTORE_BOOTSTRAP_SERVERS": ""}, "SCHEMA_REGISTRY_KAFKASTORE_BOOTSTRAP_SERVERS: no broker is named"),
    "ZooKeeper": ({"KAFKASTORE_BOOTSTRAP_SERVERS": "", "KAFKASTORE_CONNECTION_URL": "zk:2181"}, "no broker is named"),
    "another protocol": ({"KAFKASTORE_BOOTSTRAP_SERVERS": "SSL://a:1"}, "no address is of the protocol PLAINTEXT"),
    "logins of a JVM": ({"AUTHENTICATION_METHOD": "BASIC"}, "AUTHENTICATION_METHOD: .*=BASIC is not known here; .*OTTLA_REGISTRY_USERS"),
    "certificates of clients": ({"SSL_CLIENT_AUTH": "true"}, "SSL_CLIENT_AUTH: .*=true is not known here"),
    "no port": ({"LISTENERS": "http://0.0.0.0"}, "SCHEMA_REGISTRY_LISTENERS: http://0.0.0.0 is not http://HOST:PORT"),
    "two listeners": ({"LISTENERS": "http://0.0.0.0:8081,https://0.0.0.0:8082"}, "one listener here, and not also https://8082"),
    "another scheme": ({"SCHEMA_REGISTRY_INTER_INSTANCE_PROTOCOL": "https"}, "none is of https"),
    "https without a key": ({"LISTENERS": "https://0.0.0.0:8081"}, "SSL_KEYSTORE_LOCATION: it is not set; https needs it"),
    "a keystore of Java": ({"LISTENERS": "https://0.0.0.0:8081", "SSL_KEYSTORE_LOCATION": "/k.jks"}, "/k.jks is of the type JKS; convert it"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_another_registry_than_the_variables_say_is_refused(name: str) -> None:
    given, said = REFUSED[name]
    with pytest.raises(ContainerError, match=said):
        registry_start(prefixed(KAFKA | given))


def test_the_images_start_serves_schemas_and_keeps_the_login_to_itself(cli: Cli, tmp_path: Path) -> None:
    given = {
        "HOST_NAME": "127.0.0.1",
        "LISTENERS": "http://127.0.0.1:0",
        "KAFKASTORE_BOOTSTRAP_SERVERS": f"PLAINTEXT://{cli.bootstrap}",
        "KAFKASTORE_SECURITY_PROTOCOL": "PLAINTEXT",
        "KAFKASTORE_TOPIC": "_container-schemas",
        "SCHEMA_REGISTRY_GROUP_ID": "container",
        "AVRO_COMPATIBILITY_LEVEL": "NONE",
        "OPTS": "-Dx=y",
    }
    given = prefixed(given) | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ottla", "container", "registry"], env=given, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or not lines[-1].startswith("schema registry at "):
            assert select.select([process.stdout], [], [], 90)[0], lines
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        assert lines[0] == "===> Note: not known here, and not read: SCHEMA_REGISTRY_OPTS\n"
        with urllib.request.urlopen(f"{lines[-1].split()[-1]}/config", timeout=30) as answer:
            assert json.load(answer) == {"compatibilityLevel": "NONE"}
        (file,) = tmp_path.iterdir()
        assert (file.read_text().strip(), file.stat().st_mode & 0o777) == ("security.protocol=PLAINTEXT", 0o600)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
