"""Secrets in messages: none of them is written, whatever the version, and a message that cannot be read loses its body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.protocol.api import APIS, ApiKey, encode_request_header, response_header_version
from ottla.protocol.compile import encode
from ottla.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from ottla.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.fetch_snapshot import (
    FetchSnapshotResponse,
    PartitionSnapshotResponse,
    TopicSnapshotResponse,
)
from ottla.protocol.messages.incremental_alter_configs import AlterableConfig as IncrementalConfig
from ottla.protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from ottla.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.traffic.entries import CUT, MASKED
from ottla.traffic.masking import CLUSTER_METADATA_ID, IN_REQUESTS, IN_RESPONSES, Masking, is_secret_config
from ottla.traffic.messages import read_request_message, read_response_message

SECRET = b"hunter2-hunter2"
TEXT = SECRET.decode()

REQUESTS: dict[ApiKey, Callable[[], Any]] = {
    ApiKey.SASL_AUTHENTICATE: lambda: SaslAuthenticateRequest(b"\0alice\0" + SECRET),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda: AlterUserScramCredentialsRequest(
        upsertions=[ScramCredentialUpsertion("alice", 1, 4096, SECRET, SECRET)]
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: lambda: RenewDelegationTokenRequest(SECRET, 1),
    ApiKey.EXPIRE_DELEGATION_TOKEN: lambda: ExpireDelegationTokenRequest(SECRET, 1),
    ApiKey.ALTER_CONFIGS: lambda: AlterConfigsRequest(
        [AlterConfigsResource(4, "1", [AlterableConfig("listener.name.tls.ssl.key.password", TEXT)])]
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda: IncrementalAlterConfigsRequest(
        [IncrementalResource(4, "1", [IncrementalConfig("listener.name.x.scram-sha-256.sasl.jaas.config", 0, TEXT)])]
    ),
    ApiKey.ENVELOPE: lambda: EnvelopeRequest(SECRET, None, b"\x7f\0\0\1"),
}
RESPONSES: dict[ApiKey, Callable[[], Any]] = {
    ApiKey.SASL_AUTHENTICATE: lambda: SaslAuthenticateResponse(auth_bytes=SECRET),
    ApiKey.CREATE_DELEGATION_TOKEN: lambda: CreateDelegationTokenResponse(hmac=SECRET),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: lambda: DescribeDelegationTokenResponse(
        tokens=[DescribedDelegationToken(hmac=SECRET)]
    ),
    ApiKey.FETCH_SNAPSHOT: lambda: FetchSnapshotResponse(
        topics=[TopicSnapshotResponse("__cluster_metadata", [PartitionSnapshotResponse(unaligned_records=SECRET)])]
    ),
    ApiKey.ENVELOPE: lambda: EnvelopeResponse(SECRET),
}


def request_frame(key: ApiKey, version: int, body: Any) -> bytes:
    return encode_request_header(key, version, 5, "a client") + encode(body, version)


def response_frame(key: ApiKey, version: int, body: Any) -> bytes:
    return (5).to_bytes(4, "big") + (b"\0" if response_header_version(key, version) else b"") + encode(body, version)


def test_each_api_with_secrets_is_tried() -> None:
    assert REQUESTS.keys() == IN_REQUESTS.keys()
    assert RESPONSES.keys() == IN_RESPONSES.keys()


@pytest.mark.parametrize("key", REQUESTS)
def test_no_secret_of_a_request_is_written(key: ApiKey) -> None:
    for version in range(APIS[key].min_version, APIS[key].max_version + 1):
        frame = request_frame(key, version, REQUESTS[key]())
        assert SECRET in frame
        masked = Masking().request(key, memoryview(frame))
        assert SECRET not in bytes(masked.frame)
        assert masked.flags == MASKED
        assert read_request_message(masked.frame).client_id == "a client"


@pytest.mark.parametrize("key", RESPONSES)
def test_no_secret_of_a_response_is_written(key: ApiKey) -> None:
    for version in range(APIS[key].min_version, APIS[key].max_version + 1):
        frame = response_frame(key, version, RESPONSES[key]())
        assert SECRET in frame
        masked = Masking().response(key, version, memoryview(frame))
        assert SECRET not in bytes(masked.frame)
        assert masked.flags == MASKED
        read_response_message(key, version, masked.frame)


@pytest.mark.parametrize("key", REQUESTS)
def test_what_cannot_be_read_loses_its_body(key: ApiKey) -> None:
    newer = request_frame(key, APIS[key].max_version, REQUESTS[key]())
    newer = newer[:2] + (99).to_bytes(2, "big") + newer[4:]
    cut_off = request_frame(key, APIS[key].max_version, REQUESTS[key]())[:-1]
    for frame in (newer, cut_off, newer[:9]):
        masked = Masking().request(key, memoryview(frame))
        assert SECRET not in bytes(masked.frame)
        assert masked.flags == MASKED | CUT


@pytest.mark.parametrize("key", RESPONSES)
def test_a_response_that_cannot_be_read_loses_its_body(key: ApiKey) -> None:
    version = APIS[key].max_version
    frame = response_frame(key, version, RESPONSES[key]())
    for given, bytes_ in ((version + 1, frame), (version, frame + b"\0")):
        masked = Masking().response(key, given, memoryview(bytes_))
        assert SECRET not in bytes(masked.frame)
        assert masked.flags == MASKED | CUT


def test_configurations_without_a_secret_stay_as_they_are() -> None:
    settings = [IncrementalConfig("retention.ms", 0, "5000"), IncrementalConfig("sasl.jaas.config", 1, None)]
    body = IncrementalAlterConfigsRequest([IncrementalResource(2, "t", settings)])
    frame = request_frame(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)
    assert Masking().request(ApiKey.INCREMENTAL_ALTER_CONFIGS, memoryview(frame)) == (frame, 0)


def test_what_a_controller_sends_of_its_log_is_not_written_and_other_fetches_are() -> None:
    def fetched(topic_id: bytes) -> bytes:
        partition = PartitionData(records=SECRET)
        return response_frame(
            ApiKey.FETCH,
            17,
            FetchResponse(responses=[FetchableTopicResponse(topic_id=topic_id, partitions=[partition])]),
        )

    assert SECRET not in bytes(Masking().response(ApiKey.FETCH, 17, memoryview(fetched(CLUSTER_METADATA_ID))).frame)
    other = fetched(bytes(range(16)))
    assert Masking().response(ApiKey.FETCH, 17, memoryview(other)) == (other, 0)


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("ssl.keystore.password", True),
        ("listener.name.internal.ssl.keystore.key", True),
        ("listener.name.internal.plain.sasl.jaas.config", True),
        ("password.of.a.plugin", True),
        ("a.name.of.another.release", True),
        ("retention.ms", False),
        ("log.retention.ms", False),
        ("listener.name.internal.ssl.cipher.suites", False),
        ("consumer.session.timeout.ms", False),
    ],
)
def test_the_value_of_a_configuration_is_a_secret_unless_it_is_known_to_be_none(name: str, is_secret: bool) -> None:
    assert is_secret_config(name) is is_secret
