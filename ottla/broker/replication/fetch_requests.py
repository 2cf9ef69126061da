"""Sends a fetcher's requests. One for a single partition, in a session that goes on, is the bytes of the one before but for its position.

Measured for a record of 100 bytes: see `python -m benchmarks.steps`. Every other request is encoded by its codec.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.replication.fetch_forms import one_answer, pack_position, request_form
from ottla.broker.replication.fetcher_settings import FetcherSettings
from ottla.broker.replication.follower_session import FollowerSession
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.messages.fetch import ReplicaState
from ottla.server.network.channel_protocol import ChannelProtocol

FETCH = APIS[ApiKey.FETCH]


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
        #: The bytes of a request before its session epoch and after its topics, and what they were made for.
        self._form = b"", b""
        self._form_of = (0, 0, 0)

    def send(self, protocol: ChannelProtocol, version: int, answered: Callable[[Any, Any], None]) -> bool:
        """Sends the next request; False if there is nothing to fetch."""
        settings, session = self._settings, self._session
        replica_epoch = self._broker_epoch()
        form_of = (session.session_id, replica_epoch, version)
        if form_of == self._form_of:
            change = session.only_change()
            if change is not None:
                (topic_id, index), position, epoch = change
                offset, last_epoch, leader_epoch, log_start = position
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
