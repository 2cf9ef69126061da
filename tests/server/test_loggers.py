"""Levels of loggers, as BROKER_LOGGER resources show and change them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.log_setup import APPEND, DELETE, ROOT, SET, change_level, levels


@pytest.fixture(autouse=True)
def levels_as_before() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in ("ottla", "ottla.controller.raft", "ottla.storage")}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def test_kafkas_name_of_a_logger_sets_the_level_of_the_part_that_does_the_same() -> None:
    change_level("org.apache.kafka.raft", SET, "DEBUG", validate_only=False)
    assert logging.getLogger("ottla.controller.raft.node").getEffectiveLevel() == logging.DEBUG
    assert dict(levels())["org.apache.kafka.raft"] == "DEBUG"


def test_a_removed_level_is_that_of_the_parent() -> None:
    change_level("ottla", SET, "ERROR", validate_only=False)
    change_level("kafka.log", SET, "WARN", validate_only=False)
    change_level("kafka.log", DELETE, None, validate_only=False)
    assert dict(levels())["ottla.storage"] == "ERROR"


def test_nothing_changes_when_a_change_is_only_validated() -> None:
    before = dict(levels())
    change_level("ottla", SET, "FATAL", validate_only=True)
    assert dict(levels()) == before


def test_a_class_of_kafka_without_a_counterpart_has_a_level_that_is_described() -> None:
    change_level("kafka.server.KafkaRequestHandler", SET, "INFO", validate_only=False)
    assert dict(levels())["kafka.server.KafkaRequestHandler"] == "INFO"


@pytest.mark.parametrize(
    ("name", "operation", "level", "code"),
    [
        ("no.such.logger", SET, "INFO", ErrorCode.INVALID_CONFIG),
        ("ottla", SET, "LOUD", ErrorCode.INVALID_CONFIG),
        ("ottla", SET, None, ErrorCode.INVALID_CONFIG),
        ("ottla", APPEND, "INFO", ErrorCode.INVALID_REQUEST),
        ("ottla", 9, "INFO", ErrorCode.INVALID_REQUEST),
        (ROOT, DELETE, None, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_no_level_or_logger_is_an_error(name: str, operation: int, level: str | None, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        change_level(name, operation, level, validate_only=False)
    assert caught.value.code == code
