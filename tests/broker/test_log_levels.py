"""A broker itself decides changes of some configurations: levels of loggers (BROKER_LOGGER, KIP-412), and pools of threads."""

from __future__ import annotations

from functools import partial

from ottla.controller.metadata.configs import ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.server.log_setup import APPEND, DELETE, SET
from tests.broker.conftest import Node, eventually
from tests.broker.wire import Wire


def change(wire: Wire, node_id: str, *changes: tuple[str, int, str | None]) -> int:
    return answer(wire, node_id, *changes)[0]


def answer(wire: Wire, node_id: str, *changes: tuple[str, int, str | None]) -> tuple[int, str | None]:
    configs = [AlterableConfig(name, operation, value) for name, operation, value in changes]
    resource = AlterConfigsResource(ResourceType.BROKER_LOGGER, node_id, configs)
    (result,) = wire.request(IncrementalAlterConfigsRequest(resources=[resource])).responses
    return result.error_code, result.error_message


def described(wire: Wire) -> dict[str, str]:
    resource = DescribeConfigsResource(ResourceType.BROKER_LOGGER, "1", None)
    (result,) = wire.request(DescribeConfigsRequest(resources=[resource])).results
    return {row.name: row.value for row in result.configs}


def test_the_level_of_a_logger_is_set_and_removed_while_the_node_runs(node: Node) -> None:
    with node.wire() as wire:
        assert change(wire, "1", ("ottla.storage", SET, "WARN"), ("kafka.controller", SET, "DEBUG")) == 0
        levels = described(wire)
        assert (levels["ottla.storage"], levels["kafka.log"]) == ("WARN", "WARN")
        assert levels["ottla.controller"] == "DEBUG"
        assert change(wire, "1", ("ottla.storage", DELETE, None), ("kafka.controller", DELETE, None)) == 0
        assert described(wire)["ottla.storage"] == described(wire)["root"]


def test_of_several_levels_none_is_changed_if_one_is_wrong(node: Node) -> None:
    with node.wire() as wire:
        before = described(wire)
        changes = [("ottla.server", SET, "FATAL"), ("ottla.broker", SET, "LOUD")]
        assert change(wire, "1", *changes) == ErrorCode.INVALID_CONFIG
        assert described(wire) == before


def test_levels_of_another_broker_and_a_logger_named_twice_are_refused(node: Node) -> None:
    with node.wire() as wire:
        assert change(wire, "2", ("ottla", SET, "INFO")) == ErrorCode.INVALID_REQUEST
        assert change(wire, "1", ("ottla", SET, "INFO"), ("ottla", SET, "WARN")) == ErrorCode.INVALID_REQUEST


def test_kafkas_loggers_are_described_and_changed_by_their_own_names(node: Node) -> None:
    names = [
        "kafka.server.ControllerServer",
        "kafka.server.ReplicaManager",
        "org.apache.kafka.storage.internals.log.LogCleaner",
    ]
    with node.wire() as wire:
        assert answer(wire, "1", *((name, SET, "ERROR") for name in names)) == (ErrorCode.NONE, None)
        levels = described(wire)
        assert [levels[name] for name in names] == ["ERROR"] * 3
        assert (levels["ottla.controller"], levels["ottla.broker.replication"]) == ("ERROR", "ERROR")
        assert answer(wire, "1", *((name, DELETE, None) for name in names)) == (ErrorCode.NONE, None)


def test_what_is_wrong_is_said_in_kafkas_words(node: Node) -> None:
    with node.wire() as wire:
        assert answer(wire, "x", ("root", SET, "INFO"))[1] == "Node id must be an integer, but it is: x"
        assert answer(wire, "1", ("no.such.Logger", SET, "INFO"))[1] == "Logger no.such.Logger does not exist!"
        said = "APPEND operation is not allowed for the BROKER_LOGGER resource"
        assert answer(wire, "1", ("root", APPEND, "INFO")) == (ErrorCode.INVALID_REQUEST, said)
        said = "Cannot set the log level of root to info as it is not a supported log level. Valid log levels are "
        levels = "DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
        assert answer(wire, "1", ("root", SET, "info")) == (ErrorCode.INVALID_CONFIG, said + levels)


def alter_broker(wire: Wire, name: str, **configs: str) -> tuple[int, str | None]:
    """Alter the configurations of the broker with the id `name`, or of all brokers if it is empty. Configurations with underscores for dots."""
    changes = [AlterableConfig(key.replace("_", "."), SET, value) for key, value in configs.items()]
    resource = AlterConfigsResource(ResourceType.BROKER, name, changes)
    [result] = wire.request(IncrementalAlterConfigsRequest(resources=[resource])).responses
    return result.error_code, result.error_message


def test_local_retention_above_retention_is_refused_for_one_broker_and_for_all(node: Node) -> None:
    with node.wire() as wire:
        for name in ("1", ""):
            code, message = alter_broker(wire, name, log_retention_ms="10", log_local_retention_ms="11")
            said = "Value must not be more than log.retention.ms property value: 10 for"
            assert (code, said in (message or "")) == (ErrorCode.INVALID_REQUEST, True)


def test_a_pool_of_threads_is_altered_to_twice_its_size_at_most(node: Node) -> None:
    """The request also has a valid value, for one broker or for all. If a resource is rejected, nothing of it is stored."""

    with node.wire() as wire:
        alter = partial(alter_broker, wire)
        for name in ("1", ""):
            code, message = alter(name, log_cleaner_backoff_ms="1000", num_io_threads="17")
            assert (code, "double the current value 8" in (message or "")) == (ErrorCode.INVALID_REQUEST, True)
            code, message = alter(name, log_retention_ms="x", num_io_threads="9")
            assert message == "Invalid value x for configuration log.retention.ms: Not a number of type LONG"
        assert alter("1", num_io_threads="16") == (ErrorCode.NONE, None)
        eventually(
            lambda: alter("1", num_io_threads="32") == (ErrorCode.NONE, None), "the new size to be the current one"
        )
        resource = DescribeConfigsResource(ResourceType.BROKER, "1", None)
        [result] = wire.request(DescribeConfigsRequest(resources=[resource])).results
        values = {row.name: row.value for row in result.configs}
        assert (values["log.cleaner.backoff.ms"], values["log.retention.ms"]) == ("15000", None)
