"""Fetch: consumers need READ on each topic, followers CLUSTER_ACTION. Every fetch of a session is authorized again."""

from __future__ import annotations

from ottla.broker.authorization.guard import Handler
from ottla.broker.components import BrokerComponents
from ottla.broker.fetch.fetching import Fetching
from ottla.broker.fetch.handler import serve
from ottla.broker.fetch.reader import failed
from ottla.broker.fetch.session import FetchPartition
from ottla.broker.replication.partition import Partition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from ottla.server.authorization.operations import CLUSTER, CLUSTER_ACTION, CLUSTER_NAME, READ, TOPIC
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer


def guard(broker: BrokerComponents, handler: Handler) -> Handler:
    def fetch(request: FetchRequest, context: RequestContext) -> Answer[FetchResponse]:
        return serve(AuthorizedFetching(broker, request, context), request)

    return fetch


class AuthorizedFetching(Fetching):
    """Topics that may not be read are answered with an error in their partitions, and not waited for.

    A consumer's topic id that is unknown has no name to ask about, and gets UNKNOWN_TOPIC_ID; once it is known, the session
    has its name, and READ is asked for (`Fetching._resolve_names`).
    """

    __slots__ = ("_forbidden",)

    def __init__(self, broker: BrokerComponents, request: FetchRequest, context: RequestContext) -> None:
        super().__init__(broker, request, context)
        authorizer = broker.authorizer
        session = self.session
        if self.reader.is_follower and authorizer.allows(context, CLUSTER_ACTION, CLUSTER, CLUSTER_NAME):
            self._forbidden: set[str] = set()
            return
        names = {wanted.topic for wanted in session.partitions.values()}
        if self.reader.is_follower:
            self._forbidden = names
        else:
            self._forbidden = {name for name in names if name and not authorizer.allows(context, READ, TOPIC, name)}
        if self._forbidden:
            for wanted in session.partitions.values():
                if wanted.topic in self._forbidden:
                    session.active[wanted] = None  # also what was idle while it was allowed

    def _find(self, wanted: FetchPartition) -> Partition | None:
        return None if wanted.topic in self._forbidden else super()._find(wanted)

    def _read(
        self,
        partition: Partition | None,
        wanted: FetchPartition,
        max_bytes: int,
        min_one: bool,
    ) -> PartitionData:
        if wanted.topic in self._forbidden:
            rejection = failed(wanted.index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            rejection.aborted_transactions = []  # null in other errors: so Kafka
            return rejection
        return super()._read(partition, wanted, max_bytes, min_one)
