"""A container's environment and mounted files become properties, and contradictions are rejected."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla.container.resolve import DEFAULT_CLUSTER_ID, resolve
from ottla.container.settings import ContainerError, Resolution


def resolved(
    environment: Mapping[str, str], files: Mapping[str, str] | None = None, dialect: str | None = None
) -> Resolution:
    contents = {path: text.encode() for path, text in (files or {}).items()}
    return resolve(environment, contents.get, dialect)


COMBINED = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka:9093",
}


def test_nothing_given_is_the_packaged_node() -> None:
    found = resolved({"PATH": "/bin", "KAFKA_HEAP_OPTS": "-Xmx1g"})
    assert found.get("process.roles") == "broker,controller"
    assert found.get("offsets.topic.replication.factor") == "1"
    assert found.get("log.dirs") == "/var/lib/kafka/data"
    assert found.cluster_id is None
    assert found.default_cluster_id == DEFAULT_CLUSTER_ID


def test_one_property_in_the_environment_switches_the_packaged_ones_off() -> None:
    found = resolved({"KAFKA_NUM_PARTITIONS": "3"})
    assert {name for name in found.settings if not name.startswith("ottla.")} == {"num.partitions", "log.dirs"}


def test_the_environment_wins_over_the_mounted_file_and_both_are_named() -> None:
    files = {"/mnt/shared/config/server.properties": "num.partitions=2\nlog.dirs=/data\n"}
    found = resolved({"KAFKA_NUM_PARTITIONS": "7"}, files)
    assert found.settings["num.partitions"] == ("7", "KAFKA_NUM_PARTITIONS")
    assert found.settings["log.dirs"] == ("/data", "/mnt/shared/config/server.properties")


def test_listeners_are_those_advertised_on_all_addresses() -> None:
    found = resolved(
        {"KAFKA_PROCESS_ROLES": "broker", "KAFKA_ADVERTISED_LISTENERS": "A://one:9092,B://localhost:19092"}
    )
    assert found.get("listeners") == "A://0.0.0.0:9092,B://0.0.0.0:19092"


def test_jvm_variables_are_no_properties() -> None:
    found = resolved({**COMBINED, "KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_JMX_PORT": "9999"})
    assert "heap.opts" not in found.settings
    assert "jmx.port" not in found.settings


def test_bitnami_is_known_by_its_prefix_and_keeps_the_packaged_topics() -> None:
    found = resolved({"KAFKA_CFG_NODE_ID": "4", "KAFKA_LOGS_DIRS": "/elsewhere", "ALLOW_PLAINTEXT_LISTENER": "yes"})
    assert found.dialect == "bitnami/kafka"
    assert found.get("node.id") == "4"
    assert found.settings["log.dirs"] == ("/elsewhere", "KAFKA_LOGS_DIRS")
    assert found.get("transaction.state.log.min.isr") == "1"
    assert found.default_cluster_id is None, "without an id it takes a new one"


def test_a_file_mounted_the_bitnami_way_switches_its_variables_off() -> None:
    files = {"/bitnami/kafka/config/server.properties": "node.id=9\n"}
    found = resolved({"KAFKA_CFG_NODE_ID": "4"}, files)
    assert found.get("node.id") == "9"
    assert any("not read" in note for note in found.notes)


def test_bitnami_users_become_the_listeners_login_modules() -> None:
    found = resolved(
        {
            "KAFKA_CFG_LISTENERS": "CLIENT://:9092,INTERNAL://:9094",
            "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT",
            "KAFKA_CFG_SASL_ENABLED_MECHANISMS": "PLAIN",
            "KAFKA_CLIENT_USERS": "ann;bob",
            "KAFKA_CLIENT_PASSWORDS": 'one,t"wo',
        }
    )
    jaas = found.get("listener.name.client.plain.sasl.jaas.config")
    assert jaas is not None
    assert 'user_ann="one"' in jaas
    assert 'user_bob="t\\"wo"' in jaas


@pytest.mark.parametrize("variable", ["CLUSTER_ID", "KAFKA_CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID"])
def test_the_cluster_id_under_all_its_names_is_no_property(variable: str) -> None:
    found = resolved({**COMBINED, variable: "MkU3OEVBNTcwNTJENDM2Qk"})
    assert found.cluster_id == ("MkU3OEVBNTcwNTJENDM2Qk", variable)
    assert "cluster.id" not in found.settings


def test_a_secret_file_stands_for_its_variable() -> None:
    files = {"/run/secrets/id": "abc\n", "/run/secrets/key": "pass word\n"}
    found = resolved(
        {**COMBINED, "CLUSTER_ID_FILE": "/run/secrets/id", "KAFKA_SSL_KEY_PASSWORD_FILE": "/run/secrets/key"}, files
    )
    assert found.cluster_id is not None and found.cluster_id.value == "abc"
    assert found.settings["ssl.key.password"] == ("pass word", "KAFKA_SSL_KEY_PASSWORD_FILE (/run/secrets/key)")


def test_a_property_that_ends_in_file_is_no_reference() -> None:
    found = resolved({**COMBINED, "KAFKA_SASL_OAUTHBEARER_ASSERTION_FILE": "/nowhere"})
    assert found.get("sasl.oauthbearer.assertion.file") == "/nowhere"


def test_stores_and_their_passwords_lie_in_the_secrets_folder() -> None:
    found = resolved(
        {
            **COMBINED,
            "KAFKA_SSL_KEYSTORE_FILENAME": "broker.jks",
            "KAFKA_SSL_KEYSTORE_CREDENTIALS": "store_creds",
        },
        {"/etc/kafka/secrets/store_creds": "changeit\n"},
    )
    assert found.get("ssl.keystore.location") == "/etc/kafka/secrets/broker.jks"
    assert found.get("ssl.keystore.password") == "changeit"


def test_the_jaas_file_of_the_jvm_options_is_read() -> None:
    files = {
        "/etc/jaas.conf": """
        // users of the broker
        KafkaServer {
          org.apache.kafka.common.security.plain.PlainLoginModule required
          username="admin" password="a;b}" user_admin="a;b}";
        };
        """
    }
    found = resolved(
        {
            **COMBINED,
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "KAFKA_OPTS": "-Xss1m -Djava.security.auth.login.config=/etc/jaas.conf",
        },
        files,
    )
    assert found.get("listener.name.clients.plain.sasl.jaas.config") == (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="a;b}" user_admin="a;b}";'
    )


def test_a_lone_broker_of_zookeepers_time_is_its_own_controller() -> None:
    found = resolved(
        {
            "KAFKA_BROKER_ID": "1",
            "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092,HOST://localhost:9093",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,HOST:PLAINTEXT",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        }
    )
    assert found.get("process.roles") == "broker,controller"
    assert found.get("listeners") == "PLAINTEXT://0.0.0.0:9092,HOST://0.0.0.0:9093,CONTROLLER://127.0.0.1:9094"


@pytest.mark.parametrize(
    ("environment", "where", "remedy"),
    [
        ({"KAFKA_ZOOKEEPER_CONNECT": "zk:2181"}, "KAFKA_ZOOKEEPER_CONNECT", "KAFKA_PROCESS_ROLES"),
        (
            {"KAFKA_PROCESS_ROLES": "controller", "KAFKA_ADVERTISED_LISTENERS": "A://a:1"},
            "KAFKA_ADVERTISED_LISTENERS",
            "remove it",
        ),
        ({"CLUSTER_ID_FILE": "/missing"}, "CLUSTER_ID_FILE", "mount"),
        ({"CLUSTER_ID_FILE": "/missing", "CLUSTER_ID": "x"}, "CLUSTER_ID_FILE", "remove one"),
        ({"KAFKA_OPTS": "-Djava.security.auth.login.config=/missing"}, "KAFKA_OPTS", "mount"),
        ({"OTTLA_DIALECT": "klingon"}, "OTTLA_DIALECT", "apache"),
        (
            {"OTTLA_DIALECT": "confluent", "KAFKA_ADVERTISED_HOST": "x"},
            "KAFKA_ADVERTISED_HOST",
            "KAFKA_ADVERTISED_LISTENERS",
        ),
        ({"OTTLA_DIALECT": "confluent"}, "KAFKA_PROCESS_ROLES", "set it"),
        (
            {
                "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "A:SASL_SSL",
                "KAFKA_CLIENT_USERS": "a,b",
                "KAFKA_CLIENT_PASSWORDS": "x",
            },
            "KAFKA_CLIENT_USERS",
            "password",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(environment: dict[str, str], where: str, remedy: str) -> None:
    with pytest.raises(ContainerError) as refusal:
        resolved(environment)
    assert where in refusal.value.where
    assert remedy in refusal.value.remedy
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "text", ["KafkaServer", "KafkaServer {", 'A { x required k="v" };', "A { x; };", 'A { x required k="v']
)
def test_a_damaged_jaas_file_is_refused(text: str) -> None:
    with pytest.raises(ContainerError, match="JAAS"):
        resolved({"KAFKA_OPTS": "-Djava.security.auth.login.config=/j"}, {"/j": text})


OTHER_KEY = {
    "KAFKA_OTTLA_DELEGATION_TOKEN_OTHER_SECRET_KEY": "hunter4",
    "KAFKA_LISTENER_NAME_INTERNAL_PLAIN_SASL_JAAS_CONFIG": 'org.x.PlainLoginModule required password="hunter6";',
}


def test_the_report_names_origins_and_hides_secrets() -> None:
    found = resolved(
        {
            **COMBINED,
            "KAFKA_SSL_KEY_PASSWORD": "hunter2",
            "KAFKA_FOO_SECRET": "hunter3",
            "KAFKA_BAR": "hunter5",
            **OTHER_KEY,
        }
    )
    lines = list(found.report(["foo.secret", "bar"]))
    text = "\n".join(lines)
    assert "hunter" not in text
    assert "bar=[hidden]" in text, "what is not known may be a password"
    assert "listener.name.internal.plain.sasl.jaas.config=[hidden]" in text
    assert any("node.id=1" in line and "KAFKA_NODE_ID" in line for line in lines)
    assert "Not known, and ignored: foo.secret (KAFKA_FOO_SECRET), bar (KAFKA_BAR)" in text
