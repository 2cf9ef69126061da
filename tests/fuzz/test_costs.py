"""The largest requests of some APIs are judged once each; `python -m tests.fuzz.costs` has all of them."""

from __future__ import annotations

from pathlib import Path

from ottla.protocol.api import APIS, ApiKey, decode_request_header
from ottla.protocol.compile import decoder
from ottla.server.network.limits import OTHER_REQUEST_BYTES_MAX
from tests.fuzz.costs import Cost, measured, table
from tests.fuzz.largest import Shape, largest, shapes, version_of

#: A request for each way in which turns are kept short: parts, turns of long work, chunks of calls, a limit of elements.
SOME = (
    Shape(ApiKey.OFFSET_FETCH, ("groups", "topics", "partition_indexes")),
    Shape(ApiKey.OFFSET_FOR_LEADER_EPOCH, ("topics", "partitions")),
    Shape(ApiKey.READ_SHARE_GROUP_STATE, ("topics", "partitions")),
    Shape(ApiKey.DELETE_GROUPS, ("groups_names",)),
    Shape(ApiKey.LIST_OFFSETS, ("topics",), is_repeated=True),
    Shape(ApiKey.WRITE_TXN_MARKERS, ("markers",), is_repeated=True),
    Shape(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ("upsertions",)),
    Shape(ApiKey.INCREMENTAL_ALTER_CONFIGS, ("resources", "configs"), is_long=True),
    Shape(ApiKey.INCREMENTAL_ALTER_CONFIGS, (), by_hand="long lists that are appended"),
    Shape(ApiKey.DESCRIBE_QUORUM, ("topics", "partitions")),
)


def test_the_largest_requests_take_short_turns_and_little_memory(tmp_path: Path) -> None:
    wrong: list[str] = []
    costs = list(measured(tmp_path, SOME, wrong.append))
    assert wrong == []
    assert all(cost.answered for cost in costs), costs


def test_each_api_is_among_them_and_its_largest_requests_are_read() -> None:
    assert {shape.key for shape in shapes()} == set(APIS)
    for shape in SOME:
        frame = largest(shape, bytes(16), OTHER_REQUEST_BYTES_MAX)
        assert len(frame) <= OTHER_REQUEST_BYTES_MAX
        key, version, *_, pos = decode_request_header(frame, 0, len(frame))
        assert version == version_of(APIS[ApiKey(key)])
        _, end = decoder(APIS[ApiKey(key)].request, version)(frame, pos, len(frame))
        assert end == len(frame)


def test_a_long_turn_and_much_memory_are_findings() -> None:
    shape = SOME[0]
    assert Cost(shape, 40.0, 1_000, 100, 1_000_000).wrong() is None
    assert "a turn of 1000 ms" in str(Cost(shape, 1_000.0, 1_000, 100, 0).wrong())
    assert "100 MB of memory for 1000 bytes" in str(Cost(shape, 1.0, 1_000, 100, 100_000_000).wrong())
    assert "| OFFSET_FETCH | groups.topics.partition_indexes | 1,000 | 40 | below 1 |  |" in list(
        table([Cost(shape, 40.0, 1_000, 100, 10)])
    )
