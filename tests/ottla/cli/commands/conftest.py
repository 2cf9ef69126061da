"""Commands that run in the test's own process: a start of the interpreter costs more than what most of them do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.__main__ import main
from tests.ottla.conftest import Cli, Finished

Run = Callable[..., Finished]


@pytest.fixture
def here(cli: Cli, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs `ottla` against the node of the session; `stdin` is a text."""
    monkeypatch.setenv("OTTLA_BOOTSTRAP", cli.bootstrap)
    return runner(capfdbinary, monkeypatch)


def runner(capture: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs `ottla` with the environment of the test."""

    def run(*arguments: str, stdin: str = "") -> Finished:
        capture.readouterr()
        monkeypatch.setattr("sys.stdin", Typed(stdin))
        code = main(arguments)
        out, err = capture.readouterr()
        return Finished(code, out, err.decode())

    return run


class Typed:
    """Standard input that is no terminal."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines(keepends=True)

    def readline(self) -> str:
        return self._lines.pop(0) if self._lines else ""

    def isatty(self) -> bool:
        return False
