"""Timeouts of decisions: a request with a timeout of 0 times out, as in Kafka's event queue; others are decided at once."""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode, KafkaError


def reject_timed_out(timeout_ms: int) -> None:
    if timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
