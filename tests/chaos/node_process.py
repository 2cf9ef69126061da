"""One node as a process that can be killed and started again on the same data and port."""

from __future__ import annotations

import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.ports import free_ports

#: A start takes less than a second, and on a very busy machine half a minute.
READY_SECONDS_MAX = 90


class NodeProcess:
    """A process of `ottla start` on a directory and a port of its own."""

    def __init__(self, **properties: str) -> None:
        self.data = Path(tempfile.mkdtemp(prefix="ottla-chaos-"))
        self.port, _ = free_ports(2)  # the second port is the controller's
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.output = self.data.with_suffix(".log")
        self._properties = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.port + 1}",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.port + 1}",
            "log.dirs": str(self.data / "log"),
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start the process; return the seconds until it answers an ApiVersions request."""
        command = [sys.executable, "-m", "ottla", "start"]
        for name, value in self._properties.items():
            command += ["--override", f"{name}={value}"]
        begin = time.monotonic()
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        while time.monotonic() - begin < READY_SECONDS_MAX:
            assert self.process.poll() is None, f"the node ended: {self.output.read_text(errors='replace')[-2000:]}"
            if self._answers():
                return time.monotonic() - begin
            time.sleep(0.01)
        raise TimeoutError(f"no answer within {READY_SECONDS_MAX} s: {self.output}")

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Stop the process cleanly; return its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(READY_SECONDS_MAX)

    def remove(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.data, ignore_errors=True)
        self.output.unlink(missing_ok=True)

    def _answers(self) -> bool:
        request = struct.pack(">hhih", 18, 0, 1, -1)
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as conn:
                conn.settimeout(2)
                conn.sendall(struct.pack(">i", len(request)) + request)
                return len(conn.recv(64)) > 10
        except OSError:
            return False
