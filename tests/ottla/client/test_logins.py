"""Requests for SCRAM users, as Apache Kafka answers them."""

from __future__ import annotations

from typing import Any

from ottla.client.access import describe_scram_users
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsResponse


async def test_all_users_are_an_empty_list_because_kafka_may_never_answer_null() -> None:
    """Apache Kafka 4.3.1 goes through the list of a request that it rejects for lack of permission, and fails if the list is
    null.
    """

    class Asked:
        doing = ""
        users: list[str] | None = None

        async def request(self, request: Any) -> DescribeUserScramCredentialsResponse:
            self.users = [row.name for row in request.users]
            return DescribeUserScramCredentialsResponse()

    cluster: Any = Asked()
    assert await describe_scram_users(cluster) == {} and cluster.users == []
    assert await describe_scram_users(cluster, ["ann"]) == {} and cluster.users == ["ann"]
