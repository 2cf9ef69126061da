"""RaftNode on real files and sockets: elections, crashes, snapshots, restarts."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.controller.metrics import RaftMetrics
from ottla.controller.raft import log_flusher, transitions
from ottla.controller.raft.core import NotLeader
from ottla.controller.raft.driver import RaftNode
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.routes import describe_quorum
from ottla.controller.raft.snapshots import SnapshotReader, write_initial_voters
from ottla.controller.raft.voters import ReplicaKey, Voter, VoterSet
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, TopicDataRequest
from ottla.protocol.messages.quorum_structs import Listener
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.messages.shared_structs import PartitionIndex
from ottla.protocol.work import RECORDS_A_TURN
from ottla.server.network.client import Channel
from ottla.server.world import RealWorld
from ottla.storage.errors import CorruptFile
from ottla.storage.files import OsFiles
from tests.controller.raft.nodes import (
    CLUSTER_ID,
    Node,
    Quorum,
    State,
    directory_id,
    make_node,
    quorum,
    take_snapshot,
    until,
)
from tests.ports import free_ports

#: The timeout is so long that neither a slow disk's flushes nor the pauses of a busy machine reach it.
FETCH_TIMEOUT_MS = 60_000
BEFORE_THE_TIMEOUT_S = 25
TIMEOUTS = {"fetch_timeout_ms": FETCH_TIMEOUT_MS, "election_timeout_ms": FETCH_TIMEOUT_MS}


async def test_the_only_voter_leads_when_start_returns(tmp_path: Path) -> None:
    async with quorum(1, tmp_path) as made:
        node = made.nodes[0]
        assert node.raft.is_leader
        assert node.state.leaders[-1] == (1, 1)
        last = node.raft.append([b"one", b"two"])
        assert last == node.raft.log_end_offset - 1 == 2
        await until(lambda: node.state.records == [b"one", b"two"], "the commit")


async def test_a_flush_that_finds_no_descriptor_is_tried_again_and_commits_nothing_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with quorum(1, tmp_path) as made:
        node = made.nodes[0]
        open_file = os.open
        refused = 0
        are_short = threading.Event()
        are_short.set()

        def out_of_descriptors(*args: Any, **kwargs: Any) -> int:
            nonlocal refused
            if are_short.is_set() and threading.current_thread() is not threading.main_thread():
                refused += 1
                raise OSError(errno.EMFILE, "Too many open files")
            return open_file(*args, **kwargs)

        monkeypatch.setattr(os, "open", out_of_descriptors)
        monkeypatch.setattr(log_flusher, "RETRY_MS", 1)
        node.raft.append([b"one"])
        await until(lambda: refused >= 2, "two flushes without a descriptor")
        assert node.state.records == [] and node.raft.failure is None
        are_short.clear()
        await until(lambda: node.state.records == [b"one"], "the commit")


async def test_a_quorum_of_one_replays_its_log_after_a_restart(tmp_path: Path) -> None:
    async with quorum(1, tmp_path) as made:
        node = made.nodes[0]
        node.raft.append([b"one"])
        await until(lambda: node.state.records == [b"one"], "the commit")
        for life in (2, 3):
            await node.stop()
            await node.start()
            assert node.state.records == [b"one"]
            assert node.state.leaders[-1] == (1, life), "every life of a leader is a new epoch"


async def test_a_killed_quorum_of_one_still_has_what_was_committed(tmp_path: Path) -> None:
    async with quorum(1, tmp_path) as made:
        node = made.nodes[0]
        for number in range(50):
            node.raft.append([b"record %d" % number])
        await until(lambda: len(node.state.records) == 50, "the commits")
        committed = list(node.state.records)
        await node.kill()
        await node.start()
        assert node.state.records == committed


async def test_records_over_the_batch_limit_are_split_and_atomic_ones_refused(tmp_path: Path) -> None:
    async with quorum(1, tmp_path, batch_bytes_max=1000) as made:
        node = made.nodes[0]
        records = [bytes([number]) * 300 for number in range(10)]
        with pytest.raises(KafkaError) as refused:
            node.raft.append_atomic(records)
        assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
        assert node.raft.log_end_offset == 1, "a refused append leaves nothing behind"
        node.raft.append(records)
        await until(lambda: node.state.records == records, "the commit")


async def test_a_batch_just_larger_than_a_segment_is_refused_before_the_core_has_it(tmp_path: Path) -> None:
    """The values alone are as large as a segment; headers and framing of the records make the batch larger."""
    async with quorum(1, tmp_path, segment_bytes=1200, batch_bytes_max=1200) as made:
        node = made.nodes[0]
        with pytest.raises(KafkaError) as refused:
            node.raft.append_atomic([b"r" * 300] * 4)
        assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
        node.raft.append([b"s" * 300] * 4)
        await until(lambda: node.state.records == [b"s" * 300] * 4, "the commit")
        assert node.raft.failure is None


async def test_a_follower_takes_a_batch_that_is_larger_than_its_own_segments_and_starts_with_it(tmp_path: Path) -> None:
    async with quorum(3, tmp_path) as made:
        leader = await made.elect()
        follower = next(node for node in made.nodes if node is not leader)
        await follower.kill()
        follower.config = replace(follower.config, segment_bytes=1000)
        await follower.start()
        leader.raft.append_atomic([b"r" * 300] * 10)
        await until(lambda: follower.state.records == [b"r" * 300] * 10, "the commit")
        await follower.kill()
        await follower.start()
        await until(lambda: follower.state.records == [b"r" * 300] * 10, "the commit, after a restart")


async def test_three_nodes_elect_one_and_all_commit(tmp_path: Path) -> None:
    async with quorum(3, tmp_path) as made:
        leader = await made.elect()
        await made.commit_everywhere(b"hello")
        follower = next(node for node in made.nodes if node is not leader)
        with pytest.raises(NotLeader):
            follower.raft.append([b"not here"])
        with pytest.raises(NotLeader):
            leader.raft.append([b"wrong epoch"], epoch=leader.raft.state.epoch - 1)
        assert all(node.state.records == [b"hello"] for node in made.nodes)


async def test_killing_the_leader_stops_decisions_for_less_than_the_fetch_timeout(tmp_path: Path) -> None:
    async with quorum(3, tmp_path, fetch_timeout_ms=FETCH_TIMEOUT_MS) as made:
        old = await made.elect()
        await made.commit_everywhere(b"before")
        began = time.monotonic()
        await old.kill()
        await made.commit_everywhere(b"after")
        assert time.monotonic() - began < BEFORE_THE_TIMEOUT_S
        await old.start()
        await until(lambda: old.state.records == [b"before", b"after"], "the old leader to catch up")


async def test_a_quorum_that_was_killed_elects_without_waiting_for_a_leader_that_does_not_lead_any_more(
    tmp_path: Path,
) -> None:
    """The former leader resigns by EndQuorumEpoch; otherwise the others would notice only after the fetch timeout."""
    async with quorum(3, tmp_path, **TIMEOUTS) as made:
        await made.elect()
        await made.commit_everywhere(b"before")
        for node in made.nodes:
            await node.kill()
        began = time.monotonic()
        for node in made.nodes:
            await node.start()
        await made.elect()
        await made.commit_everywhere(b"after")
        assert time.monotonic() - began < BEFORE_THE_TIMEOUT_S


async def test_a_leader_that_stops_hands_over(tmp_path: Path) -> None:
    async with quorum(3, tmp_path, **TIMEOUTS) as made:
        old = await made.elect()
        await made.commit_everywhere(b"before")
        epoch = old.raft.state.epoch
        began = time.monotonic()
        await old.stop()
        new = await made.elect()
        assert time.monotonic() - began < BEFORE_THE_TIMEOUT_S
        assert new.raft.state.epoch == epoch + 1, "the first candidate wins"
        await made.commit_everywhere(b"after")


async def test_what_a_lonely_leader_appended_is_truncated(tmp_path: Path) -> None:
    async with quorum(3, tmp_path) as made:
        old = await made.elect()
        await made.commit_everywhere(b"kept")
        others = [node for node in made.nodes if node is not old]
        for node in others:
            await node.kill()
        old.raft.append([b"never committed"])
        await until(lambda: old.raft.state.log.is_flushed, "the flush")
        await old.kill()
        for node in others:
            await node.start()
        await made.commit_everywhere(b"instead")
        await old.start()
        await until(lambda: old.state.records == [b"kept", b"instead"], "the truncation")


async def test_a_follower_without_the_log_installs_the_snapshot(tmp_path: Path) -> None:
    async with quorum(3, tmp_path, retention_bytes=0, segment_bytes=2000, fetch_bytes_max=700) as made:
        leader = await made.elect()
        behind = next(node for node in made.nodes if node is not leader)
        await made.commit_everywhere(b"first")
        await behind.stop()
        for round_ in range(3):
            for number in range(20):
                leader.raft.append([b"%d-%d " % (round_, number) * 20])
            await until(lambda: leader.state.next_offset == leader.raft.log_end_offset, "the commits")
            take_snapshot(leader)
        assert leader.raft.state.log.start_offset > 0, "two snapshots and no retention: the log starts later"
        await behind.start()
        await until(lambda: behind.state.records == leader.state.records, "the snapshot and what follows")
        assert behind.state.snapshots_loaded == 1
        await made.commit_everywhere(b"last")


async def test_a_node_restarts_from_its_snapshot(tmp_path: Path) -> None:
    async with quorum(1, tmp_path) as made:
        node = made.nodes[0]
        node.raft.append([b"a", b"b"])
        await until(lambda: len(node.state.records) == 2, "the commit")
        snapshot = take_snapshot(node)
        node.raft.append([b"c"])
        await until(lambda: len(node.state.records) == 3, "the commit")
        await node.stop()
        await node.start()
        assert node.state.records == [b"a", b"b", b"c"]
        assert node.state.snapshots_loaded == 1
        assert node.raft.state.log.latest_snapshot == snapshot


async def test_a_snapshot_of_what_is_not_committed_is_refused(tmp_path: Path) -> None:
    async with quorum(1, tmp_path) as made:
        node = made.nodes[0]
        with pytest.raises(ValueError, match="no snapshot at"):
            node.raft.create_snapshot(OffsetAndEpoch(10, 1), 0)


async def test_a_snapshot_that_the_log_has_overtaken_is_not_kept(tmp_path: Path) -> None:
    """While the snapshot was being written, the log was reset to a newer snapshot of the leader."""
    async with quorum(1, tmp_path) as made:
        node = made.nodes[0]
        node.raft.append([b"a", b"b"])
        await until(lambda: len(node.state.records) == 2, "the commit")
        older = OffsetAndEpoch(node.raft.log_end_offset, node.raft.state.epoch)
        writer = node.raft.create_snapshot(older, 0)
        assert writer is not None
        writer.append([b"a", b"b"])
        writer.freeze()
        node.raft.append([b"c"])
        await until(lambda: len(node.state.records) == 3, "the commit")
        newer = take_snapshot(node)
        node.raft.core.start_log_at(newer)
        node.raft.snapshot_created(older)
        assert node.raft.state.log.snapshots == [newer]
        assert node.raft._log.snapshots.known() == [newer]


async def test_any_exception_of_the_core_ends_the_replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with a half-made change could give any answer, so it stops; the others elect a new leader."""
    async with quorum(1, tmp_path) as made:
        node = made.nodes[0]

        def fail(*args: object) -> None:
            raise KeyError("by mistake")

        monkeypatch.setattr(transitions, "append_batch", fail)
        with pytest.raises(NotLeader):
            node.raft.append([b"a"])
        assert isinstance(node.raft.failure, KeyError)


async def test_a_damaged_quorum_state_is_not_guessed_at(tmp_path: Path) -> None:
    async with quorum(1, tmp_path) as made:
        node = made.nodes[0]
        await node.stop()
        state = node.directory / "__cluster_metadata-0" / "quorum-state"
        state.write_text('{"leaderId":1,')
        with pytest.raises(CorruptFile, match="quorum-state"):
            await node.start()
        await node._let_go()


async def test_another_clusters_node_is_refused(tmp_path: Path) -> None:
    ports = free_ports(3)
    nodes = [make_node(node_id, ports, tmp_path) for node_id in (1, 2, 3)]
    nodes[2].config = replace(nodes[2].config, cluster_id="another-cluster")
    for node in nodes:
        await node.start()
    made = Quorum(nodes[:2])
    try:
        await made.commit_everywhere(b"ours")
        assert nodes[2].raft.state.leader_id == -1
        assert nodes[2].state.records == []
    finally:
        for node in nodes:
            await node.stop()


# Dynamic voters.


async def dynamic_quorum(tmp_path: Path) -> tuple[Quorum, list[int]]:
    """Return a quorum in which node 1 is the only voter, by the snapshot of the formatting, and node 2 is an observer that may
    become one.
    """
    ports = free_ports(2)
    nodes = []
    for node_id in (1, 2):
        node = make_node(node_id, ports, tmp_path, static_voters=VoterSet())
        first = make_node(1, ports, tmp_path).config.endpoints
        node.config = replace(node.config, bootstrap_servers=first)
        nodes.append(node)
    voters = VoterSet.of([Voter(ReplicaKey(1, directory_id(1)), nodes[0].config.endpoints)])
    write_initial_voters(OsFiles(), str(nodes[0].directory / "__cluster_metadata-0"), voters, 0)
    for node in nodes:
        await node.start()
    return Quorum(nodes), ports


async def test_static_voters_are_ignored_from_the_moment_at_which_the_log_has_the_voters(tmp_path: Path) -> None:
    async with quorum(1, tmp_path) as made:
        node = made.nodes[0]
        (ignored,) = [gauge for gauge in RaftMetrics(node.raft, node.real.world.clock)() if "ignored" in gauge.name]
        assert ignored.name == "kafka_controller_kafkacontroller_ignoredstaticvoters"
        assert not node.raft.state.ignores_static_voters and ignored.samples[0].value == 0
        node.raft.raise_kraft_version(1, dry_run=False)
        assert node.raft.state.ignores_static_voters


async def ask(node: Node, leader_port: int, request: object, version: int | None = None) -> object:
    channel = Channel(node.real.world, "127.0.0.1", leader_port)
    try:
        return await channel.request(request, version)
    finally:
        channel.close()


async def test_an_observer_becomes_a_voter_and_then_leads_alone(tmp_path: Path) -> None:
    made, ports = await dynamic_quorum(tmp_path)
    first, second = made.nodes
    try:
        await made.commit_everywhere(b"alone")
        assert not second.raft.state.is_voter
        listener = Listener("CONTROLLER", "127.0.0.1", ports[1])
        add = AddRaftVoterRequest(CLUSTER_ID, 5000, 2, directory_id(2), [listener])
        added = await ask(first, ports[0], add)
        assert added.error_code == ErrorCode.NONE, added
        await until(lambda: second.raft.state.is_voter, "the new voter to know")
        again = await ask(first, ports[0], add)
        assert again.error_code == ErrorCode.DUPLICATE_VOTER
        await made.commit_everywhere(b"together")
        removed = await ask(first, ports[0], RemoveRaftVoterRequest(CLUSTER_ID, 1, directory_id(1)))
        assert removed.error_code == ErrorCode.NONE, removed
        await until(lambda: second.raft.is_leader, "the remaining voter to lead")
        await made.commit_everywhere(b"without the first")
        # The list of voters survives a restart, because it is in the log.
        await second.stop()
        await second.start()
        assert second.raft.is_leader
        assert second.raft.state.voters.last.ids == (2,)
    finally:
        for node in made.nodes:
            await node.stop()


async def test_describe_quorum_returns_voters_observers_and_their_progress(tmp_path: Path) -> None:
    made, ports = await dynamic_quorum(tmp_path)
    try:
        await made.commit_everywhere(b"record")
        request = DescribeQuorumRequest([TopicDataRequest("__cluster_metadata", [PartitionIndex(0)])])

        def is_caught_up() -> bool:
            described = describe_quorum(made.nodes[0].raft, request, 2).topics[0].partitions[0]
            return [each.log_end_offset for each in described.observers] == [described.high_watermark]

        # An observer applies a record with the response to its Fetch; the leader learns of it by the next Fetch.
        await until(is_caught_up, "the observer's next Fetch")
        response = await ask(made.nodes[0], ports[0], request)
        partition = response.topics[0].partitions[0]
        assert (partition.leader_id, partition.error_code) == (1, ErrorCode.NONE)
        assert (response.error_message, partition.error_message) == ("", ""), "as in Kafka, not null"
        assert [voter.replica_id for voter in partition.current_voters] == [1]
        assert [observer.replica_id for observer in partition.observers] == [2]
        assert partition.observers[0].log_end_offset == partition.high_watermark == 4
        assert [node.node_id for node in response.nodes] == [1]
        for version in (0, 1):  # these versions have neither endpoints nor directory ids
            answer = await ask(made.nodes[0], ports[0], request, version)
            assert answer.topics[0].partitions[0].current_voters[0].replica_id == 1 and not answer.nodes
        refused = await ask(made.nodes[1], ports[1], request)
        assert refused.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    finally:
        for node in made.nodes:
            await node.stop()


async def test_appends_of_one_turn_share_a_flush(tmp_path: Path) -> None:
    async with quorum(1, tmp_path) as made:
        node = made.nodes[0]
        flushes = 0
        begin_flush = node.raft._log.begin_flush

        def counted() -> object:
            nonlocal flushes
            flushes += 1
            return begin_flush()

        node.raft._log.begin_flush = counted
        for number in range(100):
            node.raft.append([b"%d" % number])
        await until(lambda: len(node.state.records) == 100, "the commits")
        await asyncio.sleep(0)
        assert flushes <= 2


class WatchedFiles(OsFiles):
    """The files of a metadata log. They note which threads read or map them."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[str] = set()

    def _watch(self, path: str) -> None:
        if path.endswith((".log", ".checkpoint", ".index")):
            self.threads.add(threading.current_thread().name)

    def map(self, path: str, *arguments: Any) -> Any:
        self._watch(path)
        return super().map(path, *arguments)

    def pread(self, path: str, position: int, length: int) -> bytes:
        self._watch(path)
        return super().pread(path, position, length)


async def test_a_long_metadata_log_is_opened_off_the_loop(tmp_path: Path) -> None:
    """Before the fix opening the log of an idle week took 11 s, in which the node answered no request at all."""
    async with quorum(1, tmp_path) as made:
        await made.commit_everywhere(b"a")
    real, files = RealWorld(asyncio.get_running_loop()), WatchedFiles()
    node = made.nodes[0]
    raft = RaftNode(replace(real.world, files=files), node.config, str(node.directory), State())
    await raft.open()
    opened_by = set(files.threads)
    await raft.stop()
    await real.close()
    assert opened_by and threading.current_thread().name not in opened_by
    assert raft.log_end_offset > 1


async def test_a_snapshot_from_the_leader_is_checked_a_bounded_number_of_records_in_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = [0]
    values = SnapshotReader.values

    def counted(reader: SnapshotReader) -> Iterator[bytes]:
        for value in values(reader):
            looked_at[-1] += 1
            yield value

    async def turns() -> None:
        while True:
            looked_at.append(0)
            await asyncio.sleep(0)

    count = 3 * RECORDS_A_TURN
    async with quorum(3, tmp_path) as made:
        leader = await made.elect()
        lagging = next(node for node in made.nodes if node is not leader)
        await lagging.stop()
        leader.raft.append([b"%d" % number for number in range(count)])
        await until(lambda: leader.state.next_offset >= leader.raft.log_end_offset, "committed")
        take_snapshot(leader)
        shutil.rmtree(lagging.directory)
        monkeypatch.setattr(SnapshotReader, "values", counted)
        ticking = asyncio.ensure_future(turns())
        await lagging.start()
        await until(lambda: lagging.state.snapshots_loaded == 1, "the snapshot")
        ticking.cancel()
    assert sum(looked_at) == count and max(looked_at) <= RECORDS_A_TURN + 1
    assert len(lagging.state.records) >= count
