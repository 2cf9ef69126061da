"""Secrets are removed from a message before it is written: logins, SCRAM credentials, delegation tokens, passwords in
configurations.

A message that may have a secret and cannot be read, because its version is newer than our codecs or it is malformed, loses its body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.protocol.api import ApiKey, decode_request_header
from ottla.protocol.errors import ProtocolError
from ottla.protocol.primitives import Buffer
from ottla.server.config.broker import BROKER_CONFIGS, DYNAMIC_ONLY, LISTENER_PREFIX, MECHANISM_CONFIGS
from ottla.server.config.resource_configs import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from ottla.traffic.entries import CUT, MASKED, Entry, EntryKind
from ottla.traffic.messages import CORRELATION_ID, REQUEST_START, read_request_message, read_response_message
from ottla.traffic.record_noise import RecordNoise

#: This replaces a secret. Its length does not show the secret's length.
HIDDEN = b"(masked)"
HIDDEN_TEXT = HIDDEN.decode()

#: The metadata topic, which has SCRAM credentials and tokens in its records (KIP-500): its id and its name.
CLUSTER_METADATA_ID = bytes(15) + b"\1"
CLUSTER_METADATA = "__cluster_metadata"
#: A controller's response to Fetch has only this topic, so it is at the response's beginning. Brokers do not serve it.
TOPIC_WITHIN_BYTES = 256

_KNOWN_CONFIGS = BROKER_CONFIGS | DYNAMIC_ONLY | TOPIC_CONFIGS | GROUP_CONFIGS | CLIENT_METRICS_CONFIGS


class Masked(NamedTuple):
    """The bytes of a frame that may be written, and the flags of the entry."""

    frame: Buffer
    flags: int = 0


def is_secret_config(name: str) -> bool:
    """Return whether the value of a configuration is a secret. As in Kafka, the value of an unknown one counts as a secret."""
    if found := LISTENER_PREFIX.fullmatch(name):
        name = found[2]
        _, dot, own = name.partition(".")
        name = own if dot and own in MECHANISM_CONFIGS else name
    known = _KNOWN_CONFIGS.get(name)
    return known is None or known.secret


def _hide_auth_bytes(message: Any) -> None:
    message.auth_bytes = HIDDEN


def _hide_hmac(message: Any) -> None:
    message.hmac = HIDDEN


def _hide_hmacs(message: Any) -> None:
    for token in message.tokens:
        token.hmac = HIDDEN


def _hide_credentials(message: Any) -> None:
    for upsertion in message.upsertions:
        upsertion.salt = upsertion.salted_password = HIDDEN


def _hide_configs(message: Any) -> None:
    for resource in message.resources:
        for config in resource.configs:
            if config.value is not None and is_secret_config(config.name):
                config.value = HIDDEN_TEXT


def _hide_metadata_records(message: Any) -> None:
    for topic in message.responses:
        if topic.topic_id == CLUSTER_METADATA_ID or topic.topic == CLUSTER_METADATA:
            for partition in topic.partitions:
                partition.records = None if partition.records is None else b""


def _hide_snapshot(message: Any) -> None:
    for topic in message.topics:
        for partition in topic.partitions:
            partition.unaligned_records = b""


def _hide_envelope_request(message: Any) -> None:
    message.request_data = HIDDEN


def _hide_envelope_response(message: Any) -> None:
    message.response_data = None if message.response_data is None else HIDDEN


Hide = Callable[[Any], None]

#: API, and the function that removes the secrets from a request.
IN_REQUESTS: dict[int, Hide] = {
    ApiKey.SASL_AUTHENTICATE: _hide_auth_bytes,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _hide_credentials,
    ApiKey.RENEW_DELEGATION_TOKEN: _hide_hmac,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _hide_hmac,
    ApiKey.ALTER_CONFIGS: _hide_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _hide_configs,
    ApiKey.ENVELOPE: _hide_envelope_request,
}
IN_RESPONSES: dict[int, Hide] = {
    ApiKey.SASL_AUTHENTICATE: _hide_auth_bytes,
    ApiKey.CREATE_DELEGATION_TOKEN: _hide_hmac,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _hide_hmacs,
    ApiKey.FETCH_SNAPSHOT: _hide_snapshot,
    ApiKey.ENVELOPE: _hide_envelope_response,
}


class Masking:
    """The masking of one recording. It masks secrets always, and records if there is noise for them."""

    def __init__(self, noise: RecordNoise | None = None) -> None:
        self._requests = dict(IN_REQUESTS)
        self._responses = dict(IN_RESPONSES)
        if noise is not None:
            self._requests[ApiKey.PRODUCE] = _noise_in_produce(noise)
            self._responses[ApiKey.FETCH] = self._responses[ApiKey.SHARE_FETCH] = _noise_in_fetch(noise)

    def entry(self, entry: Entry) -> Entry:
        """Return an entry of a capture (which has all bytes) in a form that may be shown."""
        if entry.kind is EntryKind.REQUEST:
            masked = self.request(entry.api_key, entry.frame)
        elif entry.kind is EntryKind.RESPONSE:
            masked = self.response(entry.api_key, entry.version, entry.frame)
        else:
            return entry
        return entry._replace(frame=bytes(masked.frame), flags=entry.flags | masked.flags)

    def request(self, api_key: int, frame: Buffer) -> Masked:
        """Return a request in a form that may be written."""
        hide = self._requests.get(api_key)
        if hide is None:
            return Masked(frame)
        try:
            message = read_request_message(frame)
            hide(message.body)
            return _changed(frame, message.encoded(frame))
        except ProtocolError:
            return Masked(_head_of_request(frame), MASKED | CUT)

    def response(self, api_key: int, version: int, frame: Buffer) -> Masked:
        """Return the response to a request of this API and version, in a form that may be written."""
        hide = self._responses.get(api_key)
        if api_key == ApiKey.FETCH and _has_metadata_log(frame):
            hide = _hide_metadata_records
        if hide is None:
            return Masked(frame)
        try:
            message = read_response_message(api_key, version, frame)
            hide(message.body)
            return _changed(frame, message.encoded(frame))
        except ProtocolError:
            return Masked(bytes(frame[: CORRELATION_ID.size]), MASKED | CUT)


def _changed(frame: Buffer, masked: bytes) -> Masked:
    """Return the frame unchanged if it had no secret, so that a replay can send it."""
    return Masked(frame) if masked == frame else Masked(masked, MASKED)


def _has_metadata_log(frame: Buffer) -> bool:
    start = bytes(frame[:TOPIC_WITHIN_BYTES])
    return CLUSTER_METADATA_ID in start or CLUSTER_METADATA.encode() in start


def _head_of_request(frame: Buffer) -> bytes:
    """Return as much of the header as a request has."""
    try:
        return bytes(frame[: decode_request_header(frame, 0, len(frame))[-1]])
    except ProtocolError:
        return bytes(frame[: REQUEST_START.size])


def _noise_in_produce(noise: RecordNoise) -> Hide:
    def hide(message: Any) -> None:
        for topic in message.topic_data:
            for partition in topic.partition_data:
                partition.records = noise.records(partition.records)

    return hide


def _noise_in_fetch(noise: RecordNoise) -> Hide:
    def hide(message: Any) -> None:
        for topic in message.responses:
            for partition in topic.partitions:
                partition.records = noise.records(partition.records)

    return hide
