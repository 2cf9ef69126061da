"""The entry point: what it answers without any cluster, and how fast."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ottla.__main__ import main
from ottla.cli.command_table import COMMANDS
from ottla.cli.errors import FAILED, INTERRUPTED, OK, TIMED_OUT, USAGE
from tests.ottla.conftest import ROOT, command


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == OK
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed for name in COMMANDS)


def test_help_loads_nothing_that_is_slow() -> None:
    # 150 ms are promised. Most of that time is for imports, which can be counted on any machine.
    code = "import sys; from ottla.__main__ import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = {name.removeprefix("ottla.").partition(".")[0] for name in done.stderr.split()}
    assert not loaded & {"asyncio", "inspect", "rich", "uvloop", "protocol", "server", "storage", "broker"}


def test_a_command_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topik"]) == USAGE
    assert "did you mean 'topic'" in capsys.readouterr().err


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == USAGE
    assert "Usage: ottla" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["topic", "crate", "x"], "create"),
        (["topic", "list", "--outptu", "json"], "--outptu"),
        (["topic", "list", "-o", "xml"], "xml"),
        (["topic", "create"], "NAME"),
        (["topic", "create", "t", "-p", "many"], "many"),
        (["topic", "create", "t", "-c", "retention.ms"], "KEY=VALUE"),
        (["topic", "delete-records", "t", "--before", "yesterday"], "yesterday"),
        (["topic", "list", "-b", "nonsense:port"], "nonsense:port"),
        (["topic", "list", "--timeout", "0"], "--timeout"),
        (["consume", "t", "-n", "0"], "--max"),
        (["produce", "t", "-z", "brotli"], "brotli"),
        (["produce", "t", "-k", "a", "--key-separator", ":"], "exclude"),
        (["produce", "t", "-H", "novalue"], "NAME=VALUE"),
        (["config", "get", "topics", "t"], "topics"),
        (["config", "get", "broker", "first"], "first"),
        (["inspect", "/nowhere"], "/nowhere"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_where(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == USAGE
    assert said in capsys.readouterr().err


def test_no_broker_is_a_failure_with_the_address_and_what_to_try(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        assert main(["topic", "list", "-b", address]) == FAILED
    said = capsys.readouterr().err
    assert address in said and "ottla dev" in said


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Accepts connections and never sends anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        yield server


def address_of(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def test_a_broker_that_does_not_answer_is_given_up_with_exit_code_124(
    silent: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "list", "-b", address_of(silent), "--timeout", "0.3"]) == TIMED_OUT
    assert address_of(silent) in capsys.readouterr().err


class AnswersInHttp(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_something_that_is_no_broker_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), AnswersInHttp) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert main(["topic", "list", "-b", address_of(server.socket)]) == FAILED
        assert address_of(server.socket) in capsys.readouterr().err
        server.shutdown()


def test_ctrl_c_ends_quietly(silent: socket.socket) -> None:
    arguments = command("topic", "list", "-b", address_of(silent))
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, cwd=ROOT) as ottla:
        connection, _ = silent.accept()
        with connection:  # a closed connection would end the command before the interrupt does
            ottla.send_signal(signal.SIGINT)
            _, said = ottla.communicate(timeout=30)
    assert (ottla.returncode, said) == (INTERRUPTED, "")


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "ottla", "--version"], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, "ottla", "")


def test_an_interrupt_before_the_first_step_of_a_coroutine_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """This happens when Ctrl-C comes while asyncio closes its loop: Python would warn that the coroutine was never awaited."""

    async def never_begun() -> None: ...

    def interrupted(arguments: list[str]) -> int:
        kept = never_begun()
        raise KeyboardInterrupt(kept)

    monkeypatch.setattr("ottla.__main__.import_module", lambda name: SimpleNamespace(main=interrupted))
    gc.collect()  # objects left by other tests may cause warnings, too
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert main(["topic", "list"]) == INTERRUPTED
        gc.collect()
    assert [str(each.message) for each in seen] == []


def test_an_interrupt_while_asyncio_closes_its_loop_waits_until_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt between two looks of --watch left half of the loop, and a task about which asyncio complained."""
    steps: list[str] = []
    close = asyncio.Runner.close

    def interrupted(runner: asyncio.Runner) -> None:
        signal.raise_signal(signal.SIGINT)
        close(runner)
        steps.append("closed")

    monkeypatch.setattr(asyncio.Runner, "close", interrupted)
    # As in a process that runs only the command.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["topic", "list", "-b", "127.0.0.1:1"]) == INTERRUPTED
        assert steps == ["closed"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_closed_pipe_keeps_the_exit_code_of_what_was_found() -> None:
    """In a script with pipefail the line `ottla cluster health | head -1` reported an unhealthy cluster as healthy."""
    code = (
        "import sys, ottla.__main__ as m; from types import SimpleNamespace; from ottla.cli.output import print_rows\n"
        "def unhealthy(words):\n"
        "    sys.stdin.readline()\n"
        "    for _ in range(3): print_rows([{'place': 'x' * 100}] * 2000, ['place'], 'table')\n"
        "    return 3\n"
        "m.import_module = lambda name: SimpleNamespace(main=unhealthy)\n"
        "sys.exit(m.main(['cluster', 'health']))"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT) as ottla:
        assert ottla.stdin is not None and ottla.stdout is not None and ottla.stderr is not None
        ottla.stdout.close()
        ottla.stdin.write(b"go on\n")
        ottla.stdin.close()
        assert (ottla.wait(timeout=30), ottla.stderr.read()) == (3, b"")
