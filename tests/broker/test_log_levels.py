"""Levels of loggers over the wire: IncrementalAlterConfigs and DescribeConfigs of BROKER_LOGGER (KIP-412)."""

from __future__ import annotations

from ottla.controller.metadata.configs import ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.server.loggers import DELETE, SET
from tests.broker.conftest import Node
from tests.broker.wire import Wire


def change(wire: Wire, node_id: str, *changes: tuple[str, int, str | None]) -> int:
    configs = [AlterableConfig(name, operation, value) for name, operation, value in changes]
    resource = AlterConfigsResource(ResourceType.BROKER_LOGGER, node_id, configs)
    (result,) = wire.request(IncrementalAlterConfigsRequest(resources=[resource])).responses
    code: int = result.error_code
    return code


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
