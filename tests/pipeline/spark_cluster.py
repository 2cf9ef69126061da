"""A standalone Spark cluster of processes: a master and workers from pyspark's own jars, and what kills them with -9.

Executors find the connector's jars and this package only in what the driver sends: each starts in a folder of its own and
imports nothing from the source tree.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from ottla.pipeline.session import LOOPBACK
from tests.ports import free_ports

READY_SECONDS_MAX = 60
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
MASTER_CLASS = "org.apache.spark.deploy.master.Master"
#: The line of a worker's log that follows its registration.
REGISTERED = "Successfully registered with master"
WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"


class SparkCluster:
    """A master and workers on the loopback address; `with SparkCluster(folder) as spark: spark.url`."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 1, memory: str = "768m") -> None:
        self._folder, self._cores, self._memory = folder, cores, memory
        self._port = free_ports(1)[0]
        self.url = f"spark://{LOOPBACK}:{self._port}"
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: dict[int, subprocess.Popen[bytes]] = dict.fromkeys(range(1, workers + 1))

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._master = self._launch("master", MASTER_CLASS, "--port", str(self._port))
            self._wait("master", "I have been elected leader")
            self.start_workers(*self._workers)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process; executors end with their workers."""
        for process in (*self._workers.values(), self._master):
            if process is not None:
                _kill(process)

    def start_workers(self, *numbers: int) -> None:
        """Start these workers (from 1) and wait until the master has registered them."""
        seen = {}
        for number in numbers:
            name = f"worker-{number}"
            seen[name] = self._log(name).read_text().count(REGISTERED) if self._log(name).exists() else 0
            options = ("--cores", str(self._cores), "--memory", self._memory, "--work-dir", str(self._folder / name))
            self._workers[number] = self._launch(name, WORKER_CLASS, "--port", "0", *options, self.url)
        for name, times in seen.items():
            self._wait(name, REGISTERED, times=times + 1)

    def kill_worker(self, number: int) -> None:
        """Send -9 to the worker only; its executors end by themselves when they lose it."""
        process = self._workers[number]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def kill_executor(self) -> int | None:
        """Send -9 to an executor and the Python workers that it started. Return its process id, or None if none runs."""
        for executor in self.executors():
            with contextlib.suppress(psutil.NoSuchProcess):
                children = executor.children(recursive=True)
                executor.kill()
                for child in children:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
                return executor.pid
        return None

    def executors(self) -> list[psutil.Process]:
        """The executors that run on any worker, oldest first."""
        found = [each for process in self._workers.values() if process for each in _executors_of(process)]
        return sorted(found, key=lambda each: each.create_time())

    def _launch(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        # spark-class replaces itself with Java: the process that is started is the one that is killed.
        command = [str(home / "bin" / "spark-class"), main, "--host", LOOPBACK, "--webui-port", "0", *arguments]
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        environment.pop("PYTHONPATH", None)
        with self._log(name).open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._folder, env=environment, start_new_session=True
            )

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _wait(self, name: str, line: str, times: int = 1) -> None:
        process = self._master if name == "master" else self._workers[int(name.rpartition("-")[2])]
        assert process is not None
        until(
            lambda: self._log(name).read_text().count(line) >= times,
            f"{name} to say {line!r}",
            READY_SECONDS_MAX,
            lambda: process.poll() is None or _fail(f"{name} ended: {self._log(name).read_text()[-800:]}"),
        )


def until(condition: Callable[[], object], what: str, seconds: float, alive: Callable[[], object] = bool) -> None:
    """Wait for a condition. `alive` raises an exception when waiting has become useless."""
    deadline = time.monotonic() + seconds
    while not condition():
        alive()
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.1)


def _executors_of(process: subprocess.Popen[bytes]) -> Iterator[psutil.Process]:
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            if EXECUTOR in child.cmdline():
                yield child


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _fail(message: str) -> None:
    raise AssertionError(message)
