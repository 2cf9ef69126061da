"""The directory of a local cluster and the messages of its nodes, on a disk that takes no more bytes."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.client.failures import Failure
from ottla.local import directory as local_directory
from ottla.local.directory import KeptCluster, keep, read
from ottla.local.nodes import LocalNode, why_it_ended

FULL = Path("/dev/full")
CLUSTER = KeptCluster("6yUmSxXPRDmvTOGV_c0U-Q", 3)


def test_a_full_disk_leaves_the_settings_of_a_used_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(str(tmp_path), CLUSTER)
    keep(str(tmp_path), CLUSTER._replace(nodes=1))
    assert read(str(tmp_path)) == CLUSTER._replace(nodes=1)
    (tmp_path / "cluster.properties.new").symlink_to(FULL)
    keep(str(tmp_path), CLUSTER._replace(nodes=1))  # nothing has changed, and nothing is written
    with pytest.raises(Failure, match=f"{tmp_path}/cluster.properties cannot be used: No space left on device"):
        keep(str(tmp_path), CLUSTER)
    assert read(str(tmp_path)) == CLUSTER._replace(nodes=1)


@pytest.mark.parametrize(
    ("own", "free", "said"),
    [
        ("", 1, "it has written nothing to {log}"),
        ("", 0, "it has written nothing to {log}: no space is left on its disk"),
        ("INFO of this life\n", 1, "its log ends so:\nINFO of this life"),
        ("ottla start: the port is taken\n", 1, "the port is taken"),
    ],
)
def test_the_end_of_a_node_is_not_explained_by_the_log_of_an_earlier_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, free: int, said: str
) -> None:
    node = LocalNode(1, 1, 2, 3, str(tmp_path))
    earlier = "ottla start: of another run\n"
    Path(node.log_file).write_text(earlier + own)
    node.log_begin = len(earlier)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=free))
    assert why_it_ended(node) == said.format(log=node.log_file)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, exist_ok: bool) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(local_directory.os, "makedirs", full)
    with pytest.raises(Failure, match=f"{tmp_path}/d cannot be used: No space left on device"):
        keep(str(tmp_path / "d"), CLUSTER)
