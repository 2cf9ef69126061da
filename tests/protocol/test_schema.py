"""Declared classes are easy to work with."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest

from ottla.protocol.internal_topics.group_records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from ottla.protocol.messages.fetch import (
    FetchRequest,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.shared_structs import LeaderIdAndEpoch
from ottla.protocol.schema import (
    NONE,
    ZERO_UUID,
    fields,
    info_of,
    int32,
    maker,
    message,
    parse_versions,
    shared_default,
    struct,
    v,
)


@struct
class Inner:
    number: int32 = 7


@message(key=1, versions="0-2", flexible="2+")
class Outer:
    """A class with everything that a declaration can have."""

    name: str = ""
    inner: Inner = v("1+", factory=Inner)
    inners: list[Inner] | None = v("1+", default=[], nullable="2+")
    tagged: str | None = v("2+", tag=3, default=None, ignorable=True)

    @property
    def shout(self) -> str:
        return self.name.upper()


def test_declaration_is_read() -> None:
    name, inner, inners, tagged = fields(Outer)
    assert (name.type.name, name.versions, name.default) == ("str", parse_versions("0+"), "")
    assert (inner.type.struct, inner.versions) == (Inner, parse_versions("1+"))
    assert (inners.type.name, inners.type.item and inners.type.item.struct) == ("list", Inner)
    assert (inners.nullable, name.nullable) == (parse_versions("2+"), NONE)
    assert (tagged.tag, tagged.ignorable, tagged.nullable) == (3, True, parse_versions("2+"))
    assert info_of(Outer) == (1, parse_versions("0-2"), parse_versions("2+"))


def test_every_field_has_its_default() -> None:
    outer = Outer()
    assert (outer.name, outer.inner, outer.inners, outer.tagged) == ("", Inner(number=7), [], None)
    assert Outer(name="a", inner=Inner(number=8)) == Outer("a", Inner(8))


def test_methods_and_documentation_stay() -> None:
    assert Outer(name="a").shout == "A"
    assert Outer.__doc__ == "A class with everything that a declaration can have."
    assert Outer.__module__ == __name__


def test_unknown_fields_are_refused() -> None:
    bad: Any = {"nmae": "a"}
    with pytest.raises(TypeError):
        Outer(**bad)
    outer: Any = Outer()
    with pytest.raises(AttributeError):
        outer.nmae = "a"


def test_equality_and_readable_form() -> None:
    assert Inner(number=1) != Inner(number=2)
    assert Inner() != HeartbeatRequest()
    assert repr(Inner(number=1)) == "Inner(number=1)"
    assert "group_id='g'" in repr(HeartbeatRequest(group_id="g"))
    with pytest.raises(TypeError):
        hash(Inner())


def test_lists_are_never_shared() -> None:
    first, second = FetchRequest(), FetchRequest()
    assert first.topics is not second.topics
    value = ConsumerGroupMemberMetadataValue()
    assert value.classic_member_metadata is not ConsumerGroupMemberMetadataValue().classic_member_metadata
    assert value.classic_member_metadata == ClassicMemberMetadata()


def test_a_maker_does_what_the_constructor_does() -> None:
    new_outer = maker(Outer)
    assert new_outer() == Outer() and new_outer(name="a", tagged="b") == Outer(name="a", tagged="b")
    assert type(new_outer()) is Outer
    assert new_outer().inners is not new_outer().inners
    with pytest.raises(TypeError):
        new_outer(nam="a")


def test_default_structs_are_shared_and_refuse_changes() -> None:
    partition = PartitionData()
    assert partition.current_leader is PartitionData().current_leader is shared_default(LeaderIdAndEpoch)
    assert partition.current_leader == LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
    assert isinstance(partition.current_leader, LeaderIdAndEpoch)
    assert repr(partition.current_leader) == "LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)"
    with pytest.raises(AttributeError, match=r"assign a new LeaderIdAndEpoch\(leader_id=...\)"):
        partition.current_leader.leader_id = 3
    partition.current_leader = LeaderIdAndEpoch(leader_id=3)
    assert partition != PartitionData()


def test_objects_can_be_copied_and_pickled() -> None:
    request = FetchRequest(replica_state=ReplicaState(replica_id=3))
    assert copy.copy(request) == copy.deepcopy(request) == pickle.loads(pickle.dumps(request)) == request
    for copied in (
        copy.copy(FetchRequest()),
        copy.deepcopy(FetchRequest()),
        pickle.loads(pickle.dumps(FetchRequest())),
    ):
        assert copied.replica_state is shared_default(ReplicaState)


def test_zero_uuid_is_the_default() -> None:
    assert FetchTopic().topic_id == ZERO_UUID


def test_start_up_imports_no_message_module() -> None:
    """A broker must be up in well under a second; messages are imported when their API is first used."""
    code = "import sys, ottla.protocol.api, ottla.protocol.api; print([m for m in sys.modules if m.startswith('ottla.protocol.messages')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
