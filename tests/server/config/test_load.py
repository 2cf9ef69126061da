"""The way from server.properties to a node: what is read, what is rejected with which remedy, and what changes at run time."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.processes.start import parser, properties_of
from ottla.server.config.dynamic import describe_broker
from ottla.server.config.key import ConfigError
from ottla.server.config.listeners import Endpoint
from ottla.server.config.node_config import NodeConfig

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://localhost:9093",
}

PROPERTIES = r"""
# Kafka's own form: comments, escapes, continuation lines, spaces around the sign
process.roles = broker,\
    controller
node.id:7
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
log.dirs=/var/lib/a\u0062c,/var/lib/d
zookeeper.connect=old:2181
my.extension=1
"""

REFUSED = [
    ({"listeners": "PLAINTEXT//:x"}, "Unable to parse PLAINTEXT//:x to a broker endpoint"),
    ({"listeners": "PLAINTEXT://:99999,CONTROLLER://:1"}, "Unable to parse PLAINTEXT://:99999"),
    ({"listeners": "FOO://:1,CONTROLLER://:2"}, "No security protocol defined for listener FOO"),
    ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2,CONTROLLER://:3"}, "Each listener must have a different name"),
    ({"listeners": "PLAINTEXT://:1,CONTROLLER://:1"}, "Each listener must have a different port"),
    ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "cannot use the nonroutable meta-address 0.0.0.0"),
    ({"advertised.listeners": "OTHER://a:1"}, "OTHER is not among the listeners"),
    ({"listener.security.protocol.map": "A"}, "not of the form NAME:PROTOCOL"),
    ({"listener.security.protocol.map": "A:FOO"}, "Invalid security protocol `FOO`"),
    ({"process.roles": "foo"}, "String must be one of: broker, controller"),
    (
        {"process.roles": ""},
        "Configuration 'process.roles' must not be empty. Valid values include: [broker, controller]",
    ),
    ({"group.coordinator.rebalance.protocols": "consumer"}, "Disabling the 'classic' protocol is not supported."),
    (
        {"group.coordinator.rebalance.protocols": ""},
        "Configuration 'group.coordinator.rebalance.protocols' must not be empty.",
    ),
    ({"node.id": "-3"}, "Invalid value -3 for configuration node.id: Value must be at least 0"),
    ({"broker.id": "7"}, "You must set `node.id` to the same value as `broker.id`."),
    ({"controller.quorum.voters": "x"}, "Each entry should be in the form `{id}@{host}:{port}`."),
    ({"controller.quorum.voters": "1@a"}, "Failed to parse host name from entry 1@a"),
    ({"controller.quorum.voters": "1@a:b"}, "Failed to parse host port from entry 1@a:b"),
    ({"controller.quorum.bootstrap.servers": "x"}, 'Each entry should be in the form "{host}:{port}"'),
    (
        {"controller.quorum.voters": "1@a:1,1@b:2"},
        "controller.quorum.voters has the node id 1 twice, in 1@a:1 and in 1@b:2.",
    ),
    ({"controller.quorum.voters": "1@a:1,2@a:1"}, "has the address a:1 twice, in 1@a:1 and in 2@a:1."),
    ({"controller.quorum.voters": "1@a:65536"}, "The port of entry 1@a:65536 for the configuration"),
    ({"controller.quorum.bootstrap.servers": "a:0"}, "The port of a:0 for the configuration"),
    ({"log.dirs": "/a,/a/"}, "log.dirs names a directory twice: /a, /a."),
    ({"controller.quorum.voters": "5@a:1"}, "the node id 1 must be included in the set of voters"),
    ({"controller.listener.names": ""}, "Configuration 'controller.listener.names' must not be empty."),
    ({"controller.listener.names": "SSL"}, "No security protocol defined for listener CONTROLLER"),
    (
        {"controller.listener.names": "SSL", "listeners": "PLAINTEXT://:1"},
        "must contain at least one value appearing in the 'listeners' configuration",
    ),
    (
        {"queued.max.request.bytes": "104857599"},
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    ),
    (
        {"early.start.listeners": "CONTROLLER,NOPE"},
        "early.start.listeners contains listener NOPE, but this is not contained in listeners or controller.listener.names",
    ),
    ({"inter.broker.listener.name": "NOPE"}, "The valid options based on currently configured listeners are PLAINTEXT"),
    ({"log.dirs": ""}, "Configuration 'log.dirs' must not be empty."),
    ({"process.roles": "controller"}, "must only contain KRaft controller listeners"),
    ({"process.roles": "broker"}, "must not contain a value appearing in the 'listeners' configuration"),
    ({"auto.create.topics.enable": "yes"}, "Expected value to be either true or false"),
]


def started(*arguments: str) -> dict[str, str]:
    """Return the properties of `ottla start` with these arguments."""
    return properties_of(parser().parse_args(arguments))


def test_a_properties_file_as_kafka_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(PROPERTIES)
    config = NodeConfig(
        started(str(path), "--override", "num.partitions=4", "--override", "log.retention.hours = 12"),
    )
    assert (config.node_id, config["node.id"], config["broker.id"]) == (7, 7, 7)
    assert config["process.roles"] == ["broker", "controller"]
    assert config.log_directories == ["/var/lib/abc", "/var/lib/d"]
    assert config.metadata_log_directory == "/var/lib/abc"
    assert (config["num.partitions"], config["log.retention.hours"]) == (4, 12)
    assert config.unknown == ["my.extension", "zookeeper.connect"]
    assert (config.is_broker, config.is_controller) == (True, True)


def test_a_missing_or_invalid_file_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"cannot read .*/none: No such file"):
        started(str(tmp_path / "none"))
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\0")
    with pytest.raises(ConfigError, match="is not a properties file"):
        started(str(path))
    for wrong in ("nonsense", "=1", " = 1"):
        with pytest.raises(SystemExit) as ended:
            started("--override", wrong)
        assert ended.value.code == 2
        assert f"--override: {wrong!r} is not KEY=VALUE" in capsys.readouterr().err


def test_what_has_no_default_is_asked_for_with_an_example() -> None:
    with pytest.raises(ConfigError) as refusal:
        NodeConfig({})
    assert str(refusal.value) == 'Missing required configuration "process.roles" which has no default value.'
    assert refusal.value.what_to_try.startswith("process.roles=")


@pytest.mark.parametrize(("change", "said"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_is_refused(change: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        NodeConfig({**COMBINED, **change})
    assert said in str(refusal.value)


def test_listeners_with_and_without_an_advertised_address() -> None:
    config = NodeConfig(
        COMBINED
        | {
            "listeners": "PLAINTEXT://0.0.0.0:9092,OUTSIDE://:29092,CONTROLLER://[::1]:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_SSL,CONTROLLER:PLAINTEXT",
            "advertised.listeners": "OUTSIDE://kafka.example:19092",
        }
    )
    assert config.broker_endpoints == (
        Endpoint("PLAINTEXT", "", 9092),
        Endpoint("OUTSIDE", "", 29092, "SASL_SSL", "kafka.example", 19092),
    )
    assert config.controller_endpoints == (Endpoint("CONTROLLER", "::1", 9093),)
    assert config.inter_broker_listener == "PLAINTEXT"


def test_one_port_may_serve_ipv4_and_ipv6_apart() -> None:
    listeners = "PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092,CONTROLLER://:9093"
    assert len(NodeConfig(COMBINED | {"listeners": listeners}).endpoints) == 3


def test_the_quorum_is_known_by_voters_or_by_bootstrap_servers() -> None:
    assert NodeConfig(COMBINED | {"controller.quorum.voters": "1@a:1,2@[::1]:2"}).voters == ((1, "a", 1), (2, "::1", 2))
    assert NodeConfig(COMBINED | {"controller.quorum.bootstrap.servers": "a:1, b:2"}).bootstrap_servers == (
        ("a", 1),
        ("b", 2),
    )
    with pytest.raises(ConfigError, match=r"either controller.quorum.bootstrap.servers must contain"):
        NodeConfig({**COMBINED, "process.roles": "broker", "listeners": "PLAINTEXT://:9092"})


def test_dynamic_values_win_and_go_again() -> None:
    config = NodeConfig(COMBINED | {"log.retention.ms": "1"})
    notified: list[frozenset[str]] = []
    config.watch(lambda _, names: notified.append(names))
    assert config.set_dynamic({}, {"log.retention.ms": "2", "message.max.bytes": "5"}) == {
        "log.retention.ms",
        "message.max.bytes",
    }
    config.set_dynamic({"log.retention.ms": "3"}, {"log.retention.ms": "2"})
    assert (config["log.retention.ms"], config["message.max.bytes"]) == (3, 1_048_588)
    config.set_dynamic({}, {})
    assert config["log.retention.ms"] == 1
    assert notified[0] == {"log.retention.ms", "message.max.bytes"}
    assert len(notified) == 3


def test_a_rate_that_no_file_may_say_is_set_and_taken_back_while_the_node_runs() -> None:
    name = "leader.replication.throttled.rate"
    config = NodeConfig(COMBINED)
    unlimited = config[name]
    assert config.set_dynamic({name: "1000"}, {}) == {name}
    assert config[name] == 1000
    described = {row.name: row for row in describe_broker(config.levels, config.values)}
    assert described[name].value == "1000"
    assert config.set_dynamic({}, {}) == {name}
    assert config[name] == unlimited


def test_a_dynamic_value_that_is_no_good_is_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    config = NodeConfig(COMBINED)
    config.set_dynamic({"message.max.bytes": "x", "num.io.threads": "3"}, {})
    assert (config["message.max.bytes"], config["num.io.threads"]) == (1_048_588, 3)
    assert "Ignoring a dynamic configuration: Invalid value x" in caplog.text


def test_a_property_of_ottla_is_read_as_one_of_kafka_is() -> None:
    config = NodeConfig(COMBINED | {"ottla.produce.validate.records": "true"})
    assert (config["ottla.produce.validate.records"], config["num.partitions"]) == (True, 1)


def test_a_name_that_does_not_exist_is_a_mistake_of_ours() -> None:
    config = NodeConfig(COMBINED)
    with pytest.raises(KeyError):
        _ = config["log.retention.centuries"]


@pytest.mark.parametrize(
    ("set_to", "expected"),
    [(None, {"CONTROLLER"}), ("", set()), ("controller", {"CONTROLLER"}), ("PLAINTEXT", {"PLAINTEXT"})],
)
def test_the_listeners_of_controllers_start_early_unless_the_property_names_others(
    set_to: str | None, expected: set[str]
) -> None:
    own = {} if set_to is None else {"early.start.listeners": set_to}
    assert NodeConfig(COMBINED | own).early_start_listeners == expected
