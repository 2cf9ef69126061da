"""A node reports that it serves clients, and its children do not inherit everything."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ottla.node.parent import LOG_FILE_VARIABLE, PIPES_VARIABLE, SYSTEMD_VARIABLE, report_ready
from ottla.processes.children import spawn


def test_systemd_is_notified_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        monkeypatch.setenv(SYSTEMD_VARIABLE, str(tmp_path / "notify"))
        report_ready(-1)
        assert systemd.recv(100) == b"READY=1"
        report_ready(-1)
        with pytest.raises(BlockingIOError):
            systemd.recv(100)


def test_the_parent_reads_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SYSTEMD_VARIABLE, raising=False)
    read_fd, write_fd = os.pipe()
    report_ready(write_fd)
    assert os.read(read_fd, 64) == b"ready\n"
    os.close(read_fd)
    os.close(write_fd)


def test_a_child_writes_to_its_parent_and_is_no_service_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOG_FILE_VARIABLE, str(tmp_path / "log"))
    monkeypatch.setenv(SYSTEMD_VARIABLE, str(tmp_path / "notify"))
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nenv\n")
    program.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(program))
    with (tmp_path / "output").open("wb") as output:
        child = spawn([], output)
    child.process.wait(30)
    names = {line.partition("=")[0] for line in (tmp_path / "output").read_text().splitlines()}
    os.close(child.ready_fd)
    os.close(child.alive_fd)
    assert PIPES_VARIABLE in names
    assert not names & {LOG_FILE_VARIABLE, SYSTEMD_VARIABLE}
