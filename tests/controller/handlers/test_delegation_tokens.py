"""DescribeDelegationToken at a controller's listener."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.handlers.delegation_tokens import handle_describe
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest


def test_a_controller_lists_the_api_and_answers_it_as_kafkas_do() -> None:
    """Apache Kafka 4.3.1 has no handler for this request there (`make compat ARGS=authorization` compares it)."""
    nothing: Any = None
    with pytest.raises(KafkaError) as error:
        handle_describe(nothing, DescribeDelegationTokenRequest(owners=None), nothing)
    assert error.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
