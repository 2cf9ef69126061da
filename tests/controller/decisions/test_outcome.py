"""A decision may only write a limited number of records."""

from __future__ import annotations

import pytest

from ottla.controller.decisions.acls import create_acls
from ottla.controller.decisions.outcome import USER_RECORDS_MAX
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tests.controller.harness import DecisionHarness


def entries(count: int) -> list[AclCreation]:
    return [
        AclCreation(
            resource_type=2, resource_name=f"t{number}", resource_pattern_type=3, principal="User:a", host="*",
            operation=3, permission_type=3,
        )
        for number in range(count)
    ]  # fmt: skip


def test_a_request_that_writes_more_records_than_a_batch_may_hold_is_refused_as_a_whole() -> None:
    cluster = DecisionHarness()
    with pytest.raises(KafkaError, match=f"{USER_RECORDS_MAX + 1} records are more than {USER_RECORDS_MAX}") as refused:
        create_acls(cluster.state, CreateAclsRequest(creations=entries(USER_RECORDS_MAX + 1)), cluster.rng)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    cluster.decide(create_acls(cluster.state, CreateAclsRequest(creations=entries(USER_RECORDS_MAX)), cluster.rng))
    assert len(cluster.image.acls.entries) == USER_RECORDS_MAX
