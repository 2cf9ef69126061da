"""Memory agrees with the log, compacted or not, whatever clients do and whenever the coordinator moves."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.groups.classic.classic_member import EMPTY, STABLE
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.harness import PARKED, GroupClient, GroupCoordinatorHarness
from tests.broker.groups.replayed import compacted, group_view, replayed
from tests.effort import examples

NAMES = ("a", "b", "c")
PROTOCOLS = ("range", "sticky,range", "range,sticky", "sticky", "cooperative-sticky,range")
TOPICS = ("t", "t,u", "u")
#: The longest wait while appends are refused: longer than every session and rebalance timeout.
REFUSED_MS_MAX = 600_000

actions = st.one_of(
    st.tuples(
        st.sampled_from(["join", "join", "sync", "sync", "heartbeat", "leave", "commit"]), st.sampled_from(NAMES)
    ),
    st.tuples(
        st.just("change"), st.tuples(st.sampled_from(NAMES), st.sampled_from(PROTOCOLS), st.sampled_from(TOPICS))
    ),
    st.tuples(st.just("wait"), st.sampled_from([0, 100, 3_000, 10_001, 60_000, 700_000_000])),
    st.tuples(st.sampled_from(["restart", "delete", "hold", "release", "topic deleted", "refuse"]), st.just("")),
)


class Story:
    """Plays actions on a harness; `check` compares every group without a rebalance in progress with the log."""

    def __init__(self) -> None:
        self.harness = GroupCoordinatorHarness(offsets_retention_check_interval_ms=6 * 3_600_000)
        self.clients = {
            "a": self.harness.client("a"),
            "b": self.harness.client("b", instance="two", protocols="sticky,range"),
            "c": self.harness.client("c", version=3, protocols="range,sticky", group="g"),
        }
        self.unanswered = 0

    def act(self, verb: str, subject: Any) -> None:
        harness = self.harness
        if verb == "wait":
            # While its log rejects appends, a coordinator tries again each five seconds: in 8 days 140,000 times, which takes 2
            # s of the test.
            harness.clock.advance(subject if harness.log.refuse is None else min(subject, REFUSED_MS_MAX))
        elif verb == "restart":
            harness.log.refuse = None
            harness.restart()
        elif verb == "hold":
            harness.log.hold = True
        elif verb == "release":
            harness.log.hold, harness.log.refuse = False, None
            harness.log.release(("__consumer_offsets", 0))
        elif verb == "delete":
            harness.delete_groups(["g"])
        elif verb == "topic deleted":
            harness.coordinator.on_topics_deleted(["t"])
        elif verb == "refuse":
            harness.log.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        elif verb == "change":
            name, protocols, topics = subject
            self.clients[name].protocols, self.clients[name].topics = protocols, topics
        else:
            self._request(verb, self.clients[subject])

    def _request(self, verb: str, client: GroupClient) -> None:
        self.unanswered += 1

        def on_answer(response: Any) -> None:
            self.unanswered -= 1
            if getattr(response, "error_code", 0) in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.member_id, client.generation = "", -1

        if verb == "sync":
            group = self.harness.shard.groups.get("g")
            members = {} if group is None else dict.fromkeys(group.members, client.name.encode())
            client.sync(on_answer, members)
        elif verb == "commit":
            client.commit(on_answer, offsets={("t", 0): self.unanswered, ("u", 1): 5})
        else:
            getattr(client, verb)(on_answer)

    def check(self) -> None:
        shard = self.harness.shard
        for group in shard.groups.values():
            assert group.awaiting_join_count == sum(m.awaiting_join is not None for m in group.members.values())
            assert group.leader in group.members or not group.members
            assert group.pending_sync_members <= group.members.keys()
        settled = [group_id for group_id, group in shard.groups.items() if group.state in (STABLE, EMPTY)]
        records = self.harness.records()
        for written in (records, compacted(records)):
            again = replayed(written)
            assert again.offsets.groups == shard.offsets.groups
            assert again.groups.keys() == shard.groups.keys()
            assert [group_view(again, g) for g in settled] == [group_view(shard, g) for g in settled]


@settings(max_examples=examples(150))
@given(st.lists(actions, max_size=40))
def test_state_is_a_fold_of_the_log(script: list[tuple[str, Any]]) -> None:
    story = Story()
    for verb, subject in script:
        story.act(verb, subject)
        story.check()


@settings(max_examples=examples(40))
@given(st.lists(actions, max_size=30))
def test_every_request_is_answered_in_the_end(script: list[tuple[str, Any]]) -> None:
    story = Story()
    for verb, subject in script:
        story.act(verb, subject)
    story.act("release", None)
    # A new member is waited for at most five minutes, and each expiry may start a rebalance of one minute.
    story.harness.clock.advance(600_000)
    assert story.unanswered == 0


@settings(max_examples=examples(30))
@given(st.lists(actions, max_size=25))
def test_after_the_trouble_members_that_go_on_get_a_stable_group(script: list[tuple[str, Any]]) -> None:
    """Invariant 42: the group is stable within the rebalance timeout, if clients behave as real ones do."""
    story = Story()
    for verb, subject in script:
        story.act(verb, subject)
    story.act("release", None)
    harness, clients = story.harness, story.clients.values()
    harness.clock.advance(400_000)  # all pending responses are answered by then
    for client in clients:
        client.protocols = "range,sticky"  # one protocol that all members support
    for _ in range(90):
        for client in clients:
            _go_on(harness, client)
        harness.clock.advance(1_000)
        group = harness.shard.groups["g"]
        if group.state is STABLE and {c.member_id for c in clients} == set(group.members):
            return
    raise AssertionError(f"{harness.shard.groups['g'].state} with {list(harness.shard.groups['g'].members)}")


def _go_on(harness: GroupCoordinatorHarness, client: GroupClient) -> None:
    """Do one step of a client's loop."""
    if getattr(client, "waits", False):
        return

    def joined(response: Any) -> None:
        client.waits = False
        if response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id, client.generation = "", -1
        client.rejoin = response.error_code != ErrorCode.NONE
        if response.error_code == ErrorCode.NONE:
            client.to_sync = [member.member_id for member in response.members]

    if getattr(client, "to_sync", None) is not None:
        members, client.to_sync = client.to_sync, None
        client.waits = True
        client.sync(joined_sync(client), dict.fromkeys(members, b"x"))
    elif getattr(client, "rejoin", True):
        client.waits = True
        client.join(joined)
    elif client.heartbeat() is not PARKED and client.last[0].error_code != ErrorCode.NONE:
        if client.last[0].error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            client.member_id, client.generation = "", -1
        client.rejoin = True


def joined_sync(client: GroupClient) -> Any:
    def synced(response: Any) -> None:
        client.waits = False
        client.rejoin = response.error_code != ErrorCode.NONE

    return synced
