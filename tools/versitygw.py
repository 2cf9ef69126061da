"""versitygw, an S3 server in Go whose buckets are folders, built once by `go install` into the user's cache. For long runs of tables' tests."""

from __future__ import annotations

import os
import shutil
import signal
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


class Server:
    """The server with a bucket, which can be stopped, paused, and made to fail."""

    def __init__(self, folder: Path, bucket: str) -> None:
        self._folder = folder
        self.bucket = folder / "buckets" / bucket
        self.bucket.mkdir(parents=True)
        (folder / "sidecar").mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        #: The store options that reach it, by obstore's names.
        self.options = KEYS | {"endpoint": f"http://127.0.0.1:{self._port}"}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def start(self) -> None:
        command = [
            str(built()), "--access", KEYS["access_key_id"], "--secret", KEYS["secret_access_key"], "--port", f"127.0.0.1:{self._port}",
            "--quiet", "posix", "--sidecar", str(self._folder / "sidecar"), str(self._folder / "buckets"),
        ]  # fmt: skip
        with (self._folder / "versitygw.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        _wait(self._port, self._process)

    def stop(self) -> None:
        """End it by SIGKILL: what it was writing is left in the middle."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def take_bucket(self) -> None:
        """Let all calls fail: there is no such bucket."""
        self.bucket.rename(self.bucket.with_name("taken"))
        self.bucket.touch()  # a folder would be made again by the next call

    def recover(self) -> None:
        """End whatever was done to it."""
        taken = self.bucket.with_name("taken")
        if taken.exists():
            self.bucket.unlink()
            taken.rename(self.bucket)
        if self._process is None:
            self.start()
        else:
            self._process.send_signal(signal.SIGCONT)


@contextmanager
def running(folder: Path, bucket: str) -> Iterator[dict[str, str]]:
    """Run the server with a bucket; yield the store options that reach it."""
    with Server(folder, bucket) as server:
        yield server.options


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"versitygw does not answer; it ended with {process.poll()}")
