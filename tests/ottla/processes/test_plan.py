"""The processes of a machine get configurations that are derived from one; some configurations are rejected."""

from __future__ import annotations

import pytest

from ottla.processes.plan import plan
from ottla.server.config.key import ConfigError
from ottla.server.config.node_config import NodeConfig

BASE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/d",
}


def derived(count: int, **changes: str) -> list[dict[str, str]]:
    properties = BASE | {name.replace("_", "."): text for name, text in changes.items()}
    return [node.properties for node in plan(properties, count, "host-a")]


def test_one_configuration_becomes_a_controller_and_its_brokers() -> None:
    assert derived(2) == [
        {
            "process.roles": "controller",
            "node.id": "1",
            "listeners": "CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "log.dirs": "/d/controller",
        },
        {
            "process.roles": "broker",
            "node.id": "1001",
            "listeners": "PLAINTEXT://:9092",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "log.dirs": "/d/broker-1",
            "broker.rack": "host-a",
        },
        {
            "process.roles": "broker",
            "node.id": "1002",
            "listeners": "PLAINTEXT://:9102",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "log.dirs": "/d/broker-2",
            "broker.rack": "host-a",
        },
    ]


@pytest.mark.parametrize(
    "name, given, controller, second_broker",
    [
        (
            "advertised.listeners",
            "PLAINTEXT://h:19092,CONTROLLER://h:9093",
            "CONTROLLER://h:9093",
            "PLAINTEXT://h:19102",
        ),
        ("advertised.listeners", "PLAINTEXT://h:9092", None, "PLAINTEXT://h:9102"),
        (
            "listeners",
            "PLAINTEXT://[::1]:0,SSL://:9094,CONTROLLER://:9093",
            "CONTROLLER://:9093",
            "PLAINTEXT://[::1]:0,SSL://:9104",
        ),
        ("log.dirs", "/a,/b", "/a/controller", "/a/broker-2,/b/broker-2"),
        ("metadata.log.dir", "/m", None, "/m/broker-2"),
        ("cordoned.log.dirs", "/d", None, "/d/broker-2"),
        ("cordoned.log.dirs", "*", None, "*"),
        ("broker.rack", "zone-1", "zone-1", "zone-1"),
        ("controller.quorum.voters", "1@a:9093,2@b:9093", "1@a:9093,2@b:9093", "1@a:9093,2@b:9093"),
        ("controller.quorum.auto.join.enable", "true", "true", None),
        ("early.start.listeners", "PLAINTEXT,CONTROLLER", "CONTROLLER", "PLAINTEXT,CONTROLLER"),
        ("ottla.admin.listener", ":9644", None, None),
        ("broker.id", "1", None, None),
        ("num.partitions", "7", "7", "7"),
    ],
)
def test_each_property_has_the_value_of_its_process(
    name: str, given: str, controller: str | None, second_broker: str | None
) -> None:
    found = derived(2, **{name.replace(".", "_"): given})
    assert (found[0].get(name), found[2].get(name)) == (controller, second_broker)


def test_the_metadata_log_of_the_controller_is_where_metadata_log_dir_says() -> None:
    assert derived(1, metadata_log_dir="/m")[0]["log.dirs"] == "/m/controller"


@pytest.mark.parametrize(
    "listener, voter",
    [("[::]:9093", "1@127.0.0.1:9093"), ("0.0.0.0:9093", "1@127.0.0.1:9093"), ("10.0.0.7:9093", "1@10.0.0.7:9093")],
)
def test_a_machine_alone_finds_its_controller_where_that_listens(listener: str, voter: str) -> None:
    found = derived(1, listeners=f"PLAINTEXT://:9092,CONTROLLER://{listener}")
    assert {each["controller.quorum.voters"] for each in found} == {voter}


def test_ids_of_machines_with_the_most_brokers_do_not_meet() -> None:
    voters = "1@a:9093,2@b:9093,999@c:9093"
    ids: list[int] = []
    for machine in (1, 2, 999):
        changes = {"node.id": str(machine), "controller.quorum.voters": voters}
        ids += [node.node_id for node in plan(BASE | changes, 999, "h")]
    assert len(set(ids)) == 3 * 1000
    assert max(ids) < 2**31


def test_every_derived_configuration_is_a_nodes() -> None:
    for properties in derived(3, listeners="PLAINTEXT://:9092,SSL://:9094,CONTROLLER://:9093"):
        NodeConfig(properties)


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("process.roles", "broker", "a controller and brokers"),
        ("node.id", "0", "must not be another controller's"),
        ("node.id", "1000", "must not be another controller's"),
        ("controller.quorum.bootstrap.servers", "localhost:9093", "dynamic quorum"),
        ("ottla.metrics.port", "9308", "cannot share it"),
        (
            "listeners",
            "PLAINTEXT://:9092,SSL://:9102,CONTROLLER://:9093",
            "SSL of broker-1 and PLAINTEXT of broker-2 would both have port 9102",
        ),
        (
            "listeners",
            "PLAINTEXT://:9083,CONTROLLER://:9093",
            "CONTROLLER of controller and PLAINTEXT of broker-2 would both have port 9093",
        ),
        ("listeners", "PLAINTEXT://:65530,CONTROLLER://:9093", "port 65540, above 65535"),
        ("listeners", "PLAINTEXT://:9092,CONTROLLER://:0", "give it a port"),
        ("ottla.admin.listener", ":9102", "ottla.admin.listener and PLAINTEXT of broker-2"),
        ("ottla.admin.listener", "nowhere", "ottla.admin.listener=0.0.0.0:9644"),
    ],
)
def test_what_cannot_be_derived_is_refused_with_file_property_and_remedy(name: str, value: str, said: str) -> None:
    properties = BASE | {name: value}
    if value == "broker":
        properties |= {"listeners": "PLAINTEXT://:9092", "controller.quorum.voters": "2@b:9093"}
    with pytest.raises(ConfigError) as refusal:
        plan(properties, 2, "h", dict.fromkeys(properties, "server.properties"))
    text = f"{refusal.value} {refusal.value.what_to_try}"
    assert said in text and refusal.value.name in text and refusal.value.what_to_try
    assert "server.properties" in text or value == "nowhere"
