"""Regular expressions that members subscribe to: when the coordinator resolves them, and what follows from the result.

All expressions of a group are resolved together, so that new topics cause one rebalance and not one for each expression. A heartbeat
starts that (`refresh_if_due`), at most every ten seconds, when one of these holds:

    an expression was not resolved yet
    topics were created since the last resolution; deleted ones leave the group by its metadata hash
    the last resolution is older than group.consumer.regex.refresh.interval.ms: ACLs may have changed

An expression without topics (`is_awaited`) may match new ones: it is resolved at the next heartbeat, which comes soon.

The topics are those that the member with this heartbeat may describe.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set
from functools import partial

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ResolvedRegex, regex_record
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.broker.groups.modern.offload import compiled
from ottla.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

#: The least time between two resolutions of one group.
REFRESH_MIN_INTERVAL_MS = 10_000
#: The least time between two resolutions while an expression has no topics: less than the heartbeat interval of members that wait.
AWAITED_MIN_INTERVAL_MS = 500
#: The pause before looking again whether the hashes of many new topics are there.
HASHING_MS = 20
NO_TOPICS = ResolvedRegex(frozenset(), 0, 0)


def change(group: ConsumerGroup, before: str, after: str) -> list[CoordinatorRecord]:
    """Return the records for the new expression of a member, "" if it has none.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION for one that is not valid. Those of other members were checked before.
    """
    if before == after:
        return []
    if after and after not in group.expressions:
        try:
            compiled(after)
        except ValueError as error:
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{after[:100]}` is not a valid regular expression: {error}.",
            ) from None
    return group.regex_tombstones(before)


def is_awaited(shard: GroupMetadataManager, group: ConsumerGroup, expression: str) -> bool:
    """Return whether members wait for topics of the expression: it has none, and topics were created since it was resolved."""
    resolved = group.regexes.get(expression, NO_TOPICS)
    may_have_topics = not resolved.topics and resolved.version < shard.cluster.topics_created()
    return may_have_topics and not group.is_regex_rejected


def refresh_if_due(shard: GroupMetadataManager, group: ConsumerGroup, now_ms: int, client: Client) -> None:
    if not group.expressions or group.is_resolving:
        return
    last_ms = max((resolved.timestamp_ms for resolved in group.regexes.values()), default=group.resolved_ms)
    newest_ms = max(last_ms, group.resolved_ms)
    since_ms = now_ms - newest_ms  # below zero if a former coordinator's clock was ahead
    if 0 <= since_ms < AWAITED_MIN_INTERVAL_MS:
        return
    if 0 <= since_ms <= REFRESH_MIN_INTERVAL_MS and not any(is_awaited(shard, group, e) for e in group.expressions):
        return
    version = min((resolved.version for resolved in group.regexes.values()), default=0)
    if (
        group.expressions.keys() != group.regexes.keys()
        or version < shard.cluster.topics_created()
        or now_ms > last_ms + shard.config.consumer_regex_refresh_interval_ms
    ):
        group.is_resolving, group.resolved_ms = True, now_ms
        version = shard.cluster.version()
        names = list(shard.cluster.topics().names)

        def found(topics: Mapping[str, Set[str]] | None) -> None:
            regexes = {
                expression: ResolvedRegex(frozenset(names), version, now_ms)
                for expression, names in (topics or {}).items()
            }
            decide = partial(_resolved, shard, group, regexes)
            shard.timers.schedule(("consumer-regexes", group.group_id), 0, decide)

        shard.cluster.resolve(list(group.expressions), names, client.may_describe, found)


def _resolved(shard: GroupMetadataManager, group: ConsumerGroup, found: Mapping[str, ResolvedRegex]) -> Unasked:
    """Take the outcome of a resolution; `found` is empty if it failed, and a later heartbeat starts it again."""
    if shard.groups.get(group.group_id) is not group:
        return Outcome()
    regexes = dict(group.regexes)
    is_changed = False
    records = []
    for expression, resolved in found.items():
        # The last member of the expression may have left meanwhile.
        if expression in group.expressions:
            records.append(regex_record(group.group_id, expression, resolved))
            is_changed = is_changed or regexes.get(expression, NO_TOPICS).topics != resolved.topics
            regexes[expression] = resolved
    topics = shard.cluster.topics()
    try:
        new_hash = shard.cluster.hashes.of_group(topics, group.subscribed_topics({}, regexes))
    except KafkaError:
        again = partial(_resolved, shard, group, found)
        shard.timers.schedule(("consumer-regexes", group.group_id), HASHING_MS, again)
        return Outcome()
    group.is_resolving = False
    if records and (is_changed or new_hash != group.metadata_hash):
        records.append(group.next_epoch(new_hash))
        shard.counts.rebalances[group.type] += 1
        shard.story(group.group_id, log).info(
            "[GroupId %s] Bumped group epoch to %d: topics of regular expressions", group.group_id, group.epoch + 1
        )

    def written() -> Unasked:
        if records:
            group.is_regex_rejected = False
        return Outcome()

    def rejected(error: KafkaError) -> Unasked:
        if not group.is_regex_rejected:
            shard.story(group.group_id, log).warning(
                "[GroupId %s] Topics of regular expressions could not be written: %s", group.group_id, error
            )
        group.is_regex_rejected = True
        return Outcome()

    # The group's epoch comes last: without it a later resolution finds another metadata hash, and raises it then.
    return Outcome(records, then=written, rejected=rejected, atomic=False)
