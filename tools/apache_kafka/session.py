"""Many runs of Apache Kafka's tools in one JVM: a start costs more than what most tools do."""

from __future__ import annotations

import struct
import subprocess
import threading
from types import TracebackType

from tools.apache_kafka.jars import HERE
from tools.apache_kafka.programs import TOOLS, compiled, java_command

RUN_SECONDS_MAX = 120.0
#: Keeps counts in static fields, so that a second run in the same JVM ends at once: use `run_tool`.
ONLY_ONCE = frozenset({"kafka-console-consumer"})


class ToolSession:
    """`with ToolSession() as tools: tools.run("kafka-topics", "--bootstrap-server", address, "--list")`."""

    def __init__(self) -> None:
        command = java_command("Tools", extra_classpath=str(compiled(HERE / "Tools.java")))
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> ToolSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def run(self, name: str, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a tool as `run_tool` does."""
        assert name not in ONLY_ONCE, f"{name} works only once in a JVM"
        assert self._process.stdin is not None
        words = [TOOLS[name], stdin, *args]
        request = struct.pack(">i", len(words))
        for word in words:
            text = word.encode()
            request += struct.pack(">i", len(text)) + text
        self._process.stdin.write(request)
        self._process.stdin.flush()
        # A tool that hangs is ended with the JVM, and so ends this session, too.
        alarm = threading.Timer(RUN_SECONDS_MAX, self._process.kill)
        alarm.start()
        try:
            code = self._number()
            out, err = (self._read(self._number()).decode(errors="replace") for _ in range(2))
        finally:
            alarm.cancel()
        return subprocess.CompletedProcess([name, *args], code, out, err)

    def _number(self) -> int:
        number: int = struct.unpack(">i", self._read(4))[0]
        return number

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        if len(data) < size:
            raise TimeoutError(f"the JVM ended, or a tool took more than {RUN_SECONDS_MAX:.0f} s")
        return data
