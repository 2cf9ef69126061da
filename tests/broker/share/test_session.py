"""Share sessions: one of each member, its epochs, and its end with the connection."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from ottla.broker.share.share_session import (
    EPOCH_MAX,
    FINAL_EPOCH,
    GROUPS_MAX,
    PARTITIONS_MAX,
    SessionKey,
    ShareSession,
    ShareSessions,
    TopicIdPartition,
)
from ottla.protocol.errors import ErrorCode, KafkaError

TOPIC = b"\1" * 16
PARTITIONS = [TopicIdPartition(TOPIC, index) for index in range(3)]
A, B = SessionKey("g", "a"), SessionKey("g", "b")


class Connection:
    """The part of a connection that sessions need."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.callbacks: list[Callable[[], None]] = []

    def on_close(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def close(self) -> None:
        for callback in self.callbacks:
            callback()


class Ends:
    """Share sessions, and a record of those that have ended."""

    def __init__(self, limit: int = 10) -> None:
        self.left: list[SessionKey] = []
        self.unused: list[str] = []
        self.sessions = ShareSessions(lambda: limit, lambda session: self.left.append(session.key), self.unused.append)

    def open(self, key: SessionKey, connection: Connection) -> ShareSession:
        return self.sessions.open(key, PARTITIONS, connection)


def refused(sessions: ShareSessions, key: SessionKey, epoch: int) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        sessions.find(key, epoch)
    return caught.value.code


def test_a_session_is_found_at_its_epoch_and_at_the_last() -> None:
    ends = Ends()
    session = ends.open(A, Connection("1"))
    assert ends.sessions.find(A, 1) is session
    assert ends.sessions.find(A, FINAL_EPOCH) is session
    assert refused(ends.sessions, A, 2) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert refused(ends.sessions, B, 1) == ErrorCode.SHARE_SESSION_NOT_FOUND
    session.epoch = EPOCH_MAX
    session.advance()
    assert session.epoch == 1


def test_a_new_session_of_a_member_takes_the_place_of_the_old_one() -> None:
    ends = Ends(limit=1)
    connection = Connection("1")
    first = ends.open(A, connection)
    second = ends.open(A, connection)
    assert ends.sessions.find(A, 1) is second is not first
    assert len(ends.sessions) == 1 == len(connection.callbacks)


def test_no_more_sessions_than_the_limit() -> None:
    ends = Ends(limit=1)
    ends.open(A, Connection("1"))
    with pytest.raises(KafkaError) as caught:
        ends.open(B, Connection("2"))
    assert caught.value.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    ends.sessions.remove(A)
    ends.open(B, Connection("2"))


def test_a_session_ends_with_its_connection_and_the_last_one_leaves_the_group_unused() -> None:
    ends = Ends()
    first, second = Connection("1"), Connection("2")
    ends.open(A, first)
    ends.open(B, second)
    first.close()
    assert (ends.left, ends.unused) == ([A], [])
    second.close()
    assert (ends.left, ends.unused) == ([A, B], ["g"])


def test_sessions_that_members_have_ended_are_kept_nowhere() -> None:
    ends = Ends()
    connection = Connection("of many sessions")
    for number in range(100):
        key = SessionKey("g", str(number))
        ends.open(key, connection)
        ends.sessions.remove(key)
    # `type` and not `__class__`, which fails for a dead proxy among the objects.
    kept = [each for each in gc.get_objects() if type(each) is ShareSession and each.connection_id == connection.id]
    assert not kept
    connection.close()
    assert (ends.left, ends.unused) == ([], ["g"])


def test_groups_that_a_connection_has_made_up_are_forgotten_before_it_closes() -> None:
    ends = Ends()
    connection = Connection("1")
    ends.open(A, connection)
    for number in range(10 * GROUPS_MAX):
        key = SessionKey(f"made up {number}", "m")
        ends.open(key, connection)
        ends.sessions.remove(key)
    assert len(ends.unused) >= 9 * GROUPS_MAX
    assert "g" not in ends.unused, "its member is still there"
    connection.close()
    assert len(ends.unused) == len(set(ends.unused)) == 10 * GROUPS_MAX + 1


def test_a_session_that_went_on_with_another_connection_does_not_end_with_the_first() -> None:
    ends = Ends()
    first, second = Connection("1"), Connection("2")
    ends.open(A, first)
    session = ends.open(A, second)
    first.close()
    assert ends.left == ends.unused == []
    assert ends.sessions.find(A, 1) is session


def test_a_session_of_too_many_partitions_is_refused_and_stays_as_it_is() -> None:
    ends = Ends()
    session = ends.open(A, Connection("1"))
    most = [TopicIdPartition(TOPIC, index) for index in range(PARTITIONS_MAX)]
    session.change(most, [])
    with pytest.raises(KafkaError) as caught:
        session.change([TopicIdPartition(TOPIC, PARTITIONS_MAX)], most)
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert list(session.partitions) == most
    session.change(most, most[1:])
    assert list(session.partitions) == most[:1]


def test_partitions_take_turns_in_being_first() -> None:
    session = Ends().open(A, Connection("1"))
    firsts = []
    for _ in range(4):
        session.advance()
        firsts.append(session.rotated()[0].partition)
    assert firsts == [1, 2, 0, 1]


def test_a_response_has_what_is_new_and_once_what_was_added_or_had_an_error() -> None:
    session = Ends().open(A, Connection("1"))
    known, added = PARTITIONS[0], TopicIdPartition(TOPIC, 9)
    session.change([known, added], [PARTITIONS[1]])
    assert PARTITIONS[1] not in session.partitions

    def answers(partition: TopicIdPartition, *, records: bool = False, error: bool = False) -> bool:
        return session.must_include(partition, has_records=records, has_error=error)

    assert [answers(known), answers(added), answers(added)] == [False, True, False]
    assert [answers(known, error=True), answers(known), answers(known)] == [True, True, False]
    assert answers(known, records=True)
