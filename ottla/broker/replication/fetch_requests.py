"""The requests of a fetcher. A request for a single partition, in a session that goes on, repeats the bytes of the request
before, with another position.

Measured for a record of 100 bytes: see `python -m benchmarks.steps`. Every other request is encoded by its codec, which also makes the
repeated bytes: those of a Fetch from v13 on, with topic ids and compact lengths. The topics of a request for one partition are one
Struct, and so is the response for one partition. The leader's side is broker/fetch/repeated.py.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple, cast

from ottla.broker.replication.follower_session import INVALID_SESSION_ID, FollowerSession, Key
from ottla.broker.replication.remote_start import RemoteStates
from ottla.protocol.api import APIS, ApiKey, encode_request_header
from ottla.protocol.compile import encode
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.messages.fetch import FetchRequest, PartitionData, ReplicaState
from ottla.protocol.primitives import Buffer, read_uvarint_rest
from ottla.protocol.slotted import frozen
from ottla.server.network.channel_protocol import ChannelProtocol
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity

FETCH = APIS[ApiKey.FETCH]
#: A session epoch that no other field of a request has.
MARK = 0x7A6B5C4D
# Session epoch, topics plus one, topic id, partitions plus one; index, leader epoch, fetch offset, last fetched epoch, log start
# offset, partition_max_bytes; no tags of partition and topic.
pack_position = Struct(">iB16sBiiqiqixx").pack
# Correlation id, tags; throttle time, error, session id, topics plus one; topic id, partitions plus one; index, error, high watermark,
# last stable offset, log start offset, aborted transactions plus one, preferred replica.
ONE_ANSWER = Struct(">iBihiB16sBihqqqBi")
new_answer = tuple.__new__
#: The empty tag sections at the end: of the partition, the topic and the response.
LAST_TAGS = bytes(3)


class OneAnswer(NamedTuple):
    """The response for one partition without an error: what a follower takes of it. The records are a view of the receive buffer."""

    session_id: int
    key: Key
    high_watermark: int
    log_start_offset: int
    records: bytes | memoryview

    def kept(self) -> PartitionData:
        """Return it as a struct with a copy of the records, for a later turn."""
        return PartitionData(
            partition_index=self.key[1],
            high_watermark=self.high_watermark,
            log_start_offset=self.log_start_offset,
            records=bytes(self.records),
        )


@frozen
class FetcherSettings:
    """The properties of this node that fetchers use."""

    node_id: int
    min_bytes: int
    wait_ms_max: int
    partition_bytes_max: int
    response_bytes_max: int
    backoff_ms: int
    timeout_ms: int
    security: PeerSecurity = PLAINTEXT
    remote_states: RemoteStates | None = None


class FetchRequests:
    """The requests of one fetcher."""

    def __init__(
        self, settings: FetcherSettings, client_id: str, session: FollowerSession, broker_epoch: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._client_id = client_id
        self._session = session
        self._broker_epoch = broker_epoch
        self._replica_state = ReplicaState(replica_id=settings.node_id)
        #: The bytes of a request before its session epoch and after its topics, and the key for which they were made.
        self._form = b"", b""
        self._form_of = (0, 0, 0)

    def send(self, protocol: ChannelProtocol, version: int, answered: Callable[[Any, Any], None]) -> bool:
        """Send the next request; return False if there is nothing to fetch."""
        settings, session = self._settings, self._session
        replica_epoch = self._broker_epoch()
        form_of = (session.session_id, replica_epoch, version)
        if form_of == self._form_of:
            change = session.only_change()
            if change is not None:
                (topic_id, index), (offset, last_epoch, leader_epoch, log_start), epoch = change
                topics = pack_position(
                    epoch,
                    2,
                    topic_id,
                    2,
                    index,
                    leader_epoch,
                    offset,
                    last_epoch,
                    log_start,
                    settings.partition_bytes_max,
                )
                before, after = self._form
                protocol.call_encoded(
                    before + topics + after, FETCH, version, settings.timeout_ms, answered, one_answer
                )
                return True
        wait_ms = 0 if session.is_fresh else settings.wait_ms_max
        request = session.request()
        if request is None:
            return False
        if self._replica_state.replica_epoch != replica_epoch:
            self._replica_state = ReplicaState(replica_id=settings.node_id, replica_epoch=replica_epoch)
        request.replica_state = self._replica_state
        request.max_wait_ms = wait_ms
        request.min_bytes = settings.min_bytes
        request.max_bytes = settings.response_bytes_max
        if session.is_open and form_of != self._form_of:
            self._form, self._form_of = request_form(request, version, self._client_id), form_of
        protocol.call(self._client_id, request, FETCH, version, settings.timeout_ms, answered)
        return True


def request_form(request: FetchRequest, version: int, client_id: str | None) -> tuple[bytes, bytes]:
    """Return the bytes of a request's frame between correlation id and session epoch, and those after its last topic."""
    bare = FetchRequest(
        replica_id=request.replica_id,
        replica_state=request.replica_state,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=request.isolation_level,
        session_id=request.session_id,
        session_epoch=MARK,
        rack_id=request.rack_id,
    )
    body = encode(bare, version)
    at = body.index(MARK.to_bytes(4, "big"))
    return encode_request_header(ApiKey.FETCH, version, 0, client_id)[8:] + body[:at], body[at + 5 :]


def one_answer(correlation_id: int, frame: Buffer, pos: int, end: int) -> OneAnswer | None:
    """Return the data of a response that has one partition and no error, or None for any other response."""
    at = pos + ONE_ANSWER.size
    if at >= end:
        return None
    (
        correlated, header_tags, _, error, session_id, topics, topic_id, partitions, index, code, high_watermark, _, log_start_offset,
        aborted, _,
    ) = ONE_ANSWER.unpack_from(frame, pos)  # fmt: skip
    if correlated != correlation_id or header_tags or error or topics != 2 or partitions != 2 or code or aborted > 1:
        return None
    size = frame[at]
    at += 1
    if size > 127:
        try:
            size, at = read_uvarint_rest(frame, at, size)
        except (MalformedMessage, IndexError):
            return None
    stop = at + size - 1
    if size == 0 or stop + len(LAST_TAGS) != end or frame[stop:end] != LAST_TAGS:
        return None
    records = memoryview(frame)[at:stop]
    return new_answer(OneAnswer, (session_id, (topic_id, index), high_watermark, log_start_offset, records))


def answer_of(data: PartitionData, key: Key) -> OneAnswer:
    """Return the data of one partition of any response."""
    records = cast("bytes | memoryview", data.records or b"")
    return OneAnswer(INVALID_SESSION_ID, key, data.high_watermark, data.log_start_offset, records)


def kept(data: PartitionData) -> PartitionData:
    """Copy records that are appended in a later turn: the receive buffer that they are a view of is used again by then."""
    data.records = bytes(cast("bytes | memoryview", data.records or b""))
    return data
