"""Tables in an S3 server, written as with other stores and read back by the formats' own libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore", "moto", "flask")

from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from ottla.server.table_work import TableSettings
from ottla.tables.table import CommitConflict
from tests.ottla.tables.conftest import BUCKET, S3Server
from tests.ottla.tables.topics import TopicTables, found

FORMATS = ("iceberg", "delta")


def topic_in(lossy_s3: S3Server, folder: str, format_: str) -> TopicTables:
    return TopicTables(TableSettings(format_, f"s3://{BUCKET}/{folder}", "files", "bytes", "string", lossy_s3.options))


def read(lossy_s3: S3Server, topic: TopicTables, folder: str = "") -> list[tuple[tuple[int, int], str]]:
    """Read with pyiceberg or deltalake only, as a user does with an endpoint and keys."""
    place, options = topic.opened.store.url + folder, lossy_s3.options
    if topic.settings.format == "delta":
        given = {f"aws_{name}": value for name, value in options.items()} | {"aws_allow_http": "true"}
        return found(DeltaTable(place, storage_options=given).to_pyarrow_table().to_pylist())
    version = topic.opened.store.get("metadata/version-hint.text")
    assert version is not None
    names = {"endpoint": "endpoint", "access_key_id": "access-key-id", "secret_access_key": "secret-access-key"}
    given = {f"s3.{name}": options[ours] for ours, name in names.items()} | {"s3.region": options["region"]}
    table = StaticTable.from_metadata(f"{place}/metadata/v{version.decode()}.metadata.json", given)
    return found(table.scan().to_arrow().to_pylist())


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("loses_answers", [False, True], ids=["", "answers are lost"])
def test_each_record_is_a_row_once(lossy_s3: S3Server, tmp_path: Path, format_: str, loses_answers: bool) -> None:
    topic = topic_in(lossy_s3, tmp_path.name, format_)
    lossy_s3.losing.is_on = loses_answers
    for batch in range(2):
        topic.write(b"%d %d" % (batch, number) for number in range(10))
        topic.offer()
        topic.commit_at_last()
    assert read(lossy_s3, topic) == sorted((where, value.decode()) for where, value in topic.expected().items())
    assert bool(lossy_s3.losing.lost) == loses_answers


@pytest.mark.parametrize("format_", FORMATS)
def test_of_two_committers_that_have_loaded_one_version_the_second_conflicts(
    lossy_s3: S3Server, tmp_path: Path, format_: str
) -> None:
    topic, late = topic_in(lossy_s3, tmp_path.name, format_), topic_in(lossy_s3, tmp_path.name, format_)
    topic.commit()
    follower = late.opened.committer._followers[0]
    state = follower._table.load()
    topic.write(b"%d" % number for number in range(10))
    topic.offer()
    topic.commit()
    decision = late.opened.log.last()
    assert state is not None and decision is not None
    with pytest.raises(CommitConflict):
        follower._table.commit(state, follower._commit_of(decision))
    assert len(read(lossy_s3, topic)) == 10


def test_rejected_records_of_delta_lie_where_its_table_looks_for_them(lossy_s3: S3Server, tmp_path: Path) -> None:
    topic = topic_in(lossy_s3, tmp_path.name, "delta")
    topic.write([b"text", b"\xff", b"\xfe"])
    topic.offer()
    topic.commit()
    assert read(lossy_s3, topic, "/_rejected") == [((0, 1), b"\xfe"), ((1, 0), b"\xff")]
