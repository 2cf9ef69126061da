"""versitygw, an S3 server in Go whose buckets are folders, built once by `go install` into the user's cache. For long runs of tables' tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.apache_kafka.jars import CACHE

VERSION = "v1.8.0"
PROGRAM = CACHE / f"versitygw-{VERSION}" / "versitygw"
BUILD_SECONDS_MAX = 900
START_SECONDS_MAX = 20
KEYS = {"access_key_id": "ak", "secret_access_key": "sk", "region": "us-east-1"}


def missing() -> str | None:
    """Return the reason why the program cannot be run here."""
    return None if PROGRAM.exists() or shutil.which("go") else "there is no go on PATH, with which versitygw is built"


def built() -> Path:
    """Return the program. Raises CalledProcessError if go cannot build it."""
    if not PROGRAM.exists():
        environment = os.environ | {"GOBIN": str(PROGRAM.parent)}
        command = ["go", "install", f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"]
        subprocess.run(command, env=environment, check=True, timeout=BUILD_SECONDS_MAX)
    return PROGRAM


@contextmanager
def running(folder: Path, bucket: str) -> Iterator[dict[str, str]]:
    """Run the server with a bucket; yield the store options that reach it, by obstore's names."""
    (folder / "buckets" / bucket).mkdir(parents=True)
    (folder / "sidecar").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(built()), "--access", KEYS["access_key_id"], "--secret", KEYS["secret_access_key"], "--port", f"127.0.0.1:{port}", "--quiet",
        "posix", "--sidecar", str(folder / "sidecar"), str(folder / "buckets"),
    ]  # fmt: skip
    with (folder / "versitygw.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        _wait(port, process)
        yield KEYS | {"endpoint": f"http://127.0.0.1:{port}"}
    finally:
        process.kill()
        process.wait()


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"versitygw does not answer; it ended with {process.poll()}")
