"""SCRAM credentials are kept and described, never their keys."""

from __future__ import annotations

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tests.broker.conftest import Node


def test_a_credential_is_added_described_and_deleted(node: Node) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    added = UserScramCredentialUpsertion(
        "ann", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"secret", b"salt"
    )
    admin.alter_user_scram_credentials([added])["ann"].result(10)
    described = admin.describe_user_scram_credentials(["ann"])["ann"].result(10)
    assert [(info.mechanism, info.iterations) for info in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    deletion = UserScramCredentialDeletion("ann", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])["ann"].result(10)
    with node.wire() as wire:
        answer = wire.request(DescribeUserScramCredentialsRequest(users=[UserName(name="ann")]), 0)
    assert answer.results[0].error_code == ErrorCode.RESOURCE_NOT_FOUND


def test_a_user_asked_for_twice_gets_an_error_and_the_others_their_answer(node: Node) -> None:
    with node.wire() as wire:
        users = [UserName(name="bob"), UserName(name="bob"), UserName(name="eve")]
        answer = wire.request(DescribeUserScramCredentialsRequest(users=users), 0)
    assert [(r.user, r.error_code) for r in answer.results] == [
        ("bob", ErrorCode.DUPLICATE_RESOURCE),
        ("eve", ErrorCode.RESOURCE_NOT_FOUND),
    ]


def test_deleting_an_unknown_user_is_an_error_of_that_user_only(node: Node) -> None:
    sha_256 = 1
    with node.wire() as wire:
        answer = wire.request(
            AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(name="unknown", mechanism=sha_256)],
                upsertions=[
                    ScramCredentialUpsertion(
                        name="zoe", mechanism=sha_256, iterations=4_096, salt=b"salt", salted_password=b"p" * 32
                    )
                ],
            ),
            0,
        )
    assert {r.user: r.error_code for r in answer.results} == {"unknown": ErrorCode.RESOURCE_NOT_FOUND, "zoe": 0}
