"""Environments of compose files in the wild: each gives a node that would start, and a note names what has no effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla.cli.shims.create_topics import topic_arguments
from ottla.container.checks import check_node, check_properties
from ottla.container.entry import CLUSTER_ID
from ottla.container.first_start import FirstStart, reachable
from ottla.container.resolve import resolve
from ottla.container.settings import ContainerError, Resolution
from ottla.server.authorization.authorizer import STANDARD_AUTHORIZER

WILD: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "environments.yml").read_text())
JAAS = b"""KafkaServer { org.apache.kafka.common.security.plain.PlainLoginModule required
  username="admin" password="admin-secret" user_admin="admin-secret" user_alice="x"; };"""
FILES = {"/etc/kafka/secrets/kafka_server_jaas.conf": JAAS}


def resolved(name: str) -> Resolution:
    found = WILD[name]
    dialect = found["dialect"] if found["dialect"] != "apache" else None
    return resolve({"PATH": "/bin", **found["environment"]}, FILES.get, dialect)


def said(resolution: Resolution) -> str:
    unknown = check_properties(resolution).unknown
    return "\n".join(resolution.report(unknown))


@pytest.mark.parametrize("name", [name for name, found in WILD.items() if "refused" not in found])
def test_it_is_a_node_that_would_start_and_what_is_not_honoured_is_said(name: str) -> None:
    resolution = resolved(name)
    lines = said(resolution)
    for words in WILD[name].get("said", []):
        assert words in lines
    check_node({**resolution.properties, CLUSTER_ID: "5L6g3nShT-eMCtK--X86sw"}, {})


@pytest.mark.parametrize("name", [name for name, found in WILD.items() if "refused" in found])
def test_brokers_that_find_each_other_by_zookeeper_alone_are_refused(name: str) -> None:
    with pytest.raises(ContainerError, match=WILD[name]["refused"]):
        resolved(name)


@pytest.mark.parametrize("name", [name for name, found in WILD.items() if "refused" not in found])
def test_no_variable_is_said_twice(name: str) -> None:
    """KAFKA_JMX_PORT was in a note, and also under "Not known, and ignored"."""
    resolution = resolved(name)
    unknown = check_properties(resolution).unknown
    noted = " ".join(resolution.notes)
    origins = {resolution.origin(each) for each in unknown}
    assert not {origin for origin in origins if origin and origin in noted.replace(",", " ").split()}


def test_the_authorizer_of_zookeepers_time_becomes_the_one_of_today() -> None:
    """The option `--check` passed, and the node did not start."""
    properties = resolved("conduktor zk-single-kafka-single").properties
    assert properties["authorizer.class.name"] == STANDARD_AUTHORIZER
    assert properties["allow.everyone.if.no.acl.found"] == "true"


def test_an_authorizer_that_is_not_known_is_refused_before_the_start() -> None:
    environment = {**WILD["apache/kafka quick start"]["environment"], "KAFKA_AUTHORIZER_CLASS_NAME": "com.example.Mine"}
    with pytest.raises(ContainerError, match=r"KAFKA_AUTHORIZER_CLASS_NAME.*com.example.Mine.*StandardAuthorizer"):
        check_properties(resolve(environment, FILES.get))


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("wurstmeister", "PLAINTEXT://192.168.99.100:9092"),
        ("lensesio fast-data-dev", "PLAINTEXT://127.0.0.1:9092"),
        ("spotify/kafka", "PLAINTEXT://kafka:9092"),
    ],
)
def test_the_advertised_host_of_older_images_is_where_clients_go(name: str, address: str) -> None:
    assert resolved(name).get("advertised.listeners") == address


@pytest.mark.parametrize(
    ("name", "topics"),
    [
        ("wurstmeister", "Topic1:1:3,Topic2:1:1:compact"),
        ("wurstmeister listeners", "orders:3:1"),
        ("debezium quay.io/debezium/kafka", "a:1:1"),
    ],
)
def test_the_topics_that_an_image_creates_are_to_be_created_by_a_listener_that_asks_for_nothing(
    name: str, topics: str
) -> None:
    resolution = resolved(name)
    assert resolution.topics is not None and resolution.topics.value == topics
    assert reachable(check_properties(resolution)) in ("localhost:9092", "localhost:9093", "kafka:9092")


def test_topics_are_not_created_where_each_listener_wants_a_login_and_that_is_said() -> None:
    name = "cp-kafka SCRAM/PLAIN, KAFKA_OPTS jaas, JKS creds"
    environment = {**WILD[name]["environment"], "KAFKA_CREATE_TOPICS": "a:1:1"}
    resolution = resolve(environment, FILES.get, "confluent")
    start = FirstStart([], None, resolution.topics, reachable(check_properties(resolution)))
    (note,) = start.notes()
    assert note.startswith("KAFKA_CREATE_TOPICS is not honoured")


def test_a_topic_of_the_list_may_have_a_policy() -> None:
    assert topic_arguments("t:1:2:compact")[-2:] == ["--config", "cleanup.policy=compact"]
    for text in ("t", "t:1", "t:x:1", ":1:1", "t:1:1:a:b"):
        with pytest.raises(ValueError, match="is not name:partitions:copies"):
            topic_arguments(text)


def test_what_the_kubelet_adds_for_a_service_is_not_taken_for_properties() -> None:
    """The variables of a Service named kafka gave a long "Not known, and ignored", and stopped a container with cp-kafka's
    rules.
    """
    links = {
        "KAFKA_SERVICE_HOST": "10.96.0.20",
        "KAFKA_SERVICE_PORT": "9092",
        "KAFKA_SERVICE_PORT_INTERNAL": "9092",
        "KAFKA_PORT": "tcp://10.96.0.20:9092",
        "KAFKA_PORT_9092_TCP": "tcp://10.96.0.20:9092",
        "KAFKA_PORT_9092_TCP_PROTO": "tcp",
        "KAFKA_PORT_9092_TCP_PORT": "9092",
        "KAFKA_PORT_9092_TCP_ADDR": "10.96.0.20",
        "KAFKA_0_EXTERNAL_SERVICE_HOST": "10.96.0.21",
        "KAFKA_0_EXTERNAL_PORT": "tcp://10.96.0.21:29092",
        "KAFKA_0_EXTERNAL_PORT_29092_TCP": "tcp://10.96.0.21:29092",
    }
    given = WILD["confluent cp-all-in-one-kraft"]["environment"]
    for dialect in ("confluent", "apache"):
        with_links, without = (resolve(given | more, FILES.get, dialect) for more in (links, {}))
        assert with_links.settings == without.settings
        assert any("enableServiceLinks" in note for note in with_links.notes)


def test_an_agent_of_the_jvm_that_serves_metrics_is_said_not_to() -> None:
    given = {**WILD["apache/kafka quick start"]["environment"], "KAFKA_OPTS": "-javaagent:/opt/jmx.jar=7071:/c.yml"}
    assert "/opt/jmx.jar=7071:/c.yml does not run here" in said(resolve(given, FILES.get))
    quiet = resolve({**given, "OTTLA_ADMIN_LISTENER": ""}, FILES.get)
    assert "set OTTLA_ADMIN_LISTENER to serve metrics" in said(quiet)
