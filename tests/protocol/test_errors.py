"""Error codes as Kafka has them, and errors that know their reply."""

from __future__ import annotations

from ottla.protocol.errors import (
    MESSAGE_LENGTH_MAX,
    ErrorCode,
    KafkaError,
    MalformedMessage,
    ProtocolError,
    UnsupportedVersion,
)
from ottla.protocol.primitives import STRING_BYTES_MAX
from tests.protocol.catalog import DATA


def test_codes_names_and_retries_are_kafkas() -> None:
    lines = (DATA / "protocol_facts.txt").read_text().splitlines()
    kafkas = [words[1:] for words in map(str.split, lines) if words[0] == "error"]
    ours = [[str(int(code)), code.name, str(code.retriable).lower()] for code in ErrorCode]
    assert ours == kafkas
    assert len(ours) == 138


def test_every_code_has_words_of_its_own() -> None:
    assert all(code.message for code in ErrorCode)
    assert len({code.message for code in ErrorCode}) == len(ErrorCode)


def test_codes_are_numbers() -> None:
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.NONE == 0
    assert ErrorCode.NOT_CONTROLLER.retriable
    assert not ErrorCode.INVALID_REQUEST.retriable


def test_a_code_of_a_later_release_is_an_unknown_error() -> None:
    """A ValueError ended the task that read the response, so a broker sent no more heartbeats."""
    assert ErrorCode(9_999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_kafka_error_knows_its_reply() -> None:
    error = KafkaError(ErrorCode.INVALID_REQUEST, "no such thing")
    assert (error.code, error.message) == (42, "no such thing")
    assert str(error) == "INVALID_REQUEST: no such thing"
    assert KafkaError(ErrorCode.NOT_COORDINATOR).message == ErrorCode.NOT_COORDINATOR.message


def test_a_message_that_only_repeats_the_codes_is_none_of_its_own() -> None:
    assert KafkaError(ErrorCode.INVALID_REQUEST).own_words is None
    assert KafkaError(ErrorCode.INVALID_REQUEST, "no name").own_words == "no name"


def test_protocol_errors_are_a_family() -> None:
    assert issubclass(MalformedMessage, ProtocolError)
    assert issubclass(UnsupportedVersion, ProtocolError)
    assert not issubclass(KafkaError, ProtocolError)


def test_a_message_that_no_string_of_the_protocol_holds_is_cut() -> None:
    """A message that named 10,000 wrong configs could not be encoded, and the client got UNKNOWN_SERVER_ERROR."""
    assert KafkaError(ErrorCode.INVALID_REQUEST, "x" * MESSAGE_LENGTH_MAX).message == "x" * MESSAGE_LENGTH_MAX
    cut = KafkaError(ErrorCode.INVALID_REQUEST, "\u20ac" * 40_000).message
    assert cut == "\u20ac" * MESSAGE_LENGTH_MAX + "..."
    assert len(cut.encode()) < STRING_BYTES_MAX
