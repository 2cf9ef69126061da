"""Sessions with Apache Kafka's tools, as they were recorded with Apache Kafka 4.3.1, and their comparison with Ottla's tools.

A session is a text file of commands, each with its output:

    $ kafka-topics --bootstrap-server SERVER --create --topic orders-RUN
    < a line of its standard input
    Created topic orders-RUN.
    ! a line of its standard error
    = 1

`= 1` is the exit code, which is left out where it is 0. `$ file NAME` writes its input to a file of the session's
directory, TMP, and `$ streams-join ...` is a member of a streams group (`streams_member.py`). FILES is the folder of
files that Apache Kafka wrote (`log_files.py`), SERVER the bootstrap address, SECURE that of the listener with logins, and
RUN three letters that differ in each
run, so that a session can be repeated at one cluster. Values that differ by chance (ids, times, addresses) are replaced before
the comparison, and lines that only a JVM prints are dropped: stack traces, lines of a log, the help after a mistake in usage.

    python -m tests.ottla.cli.shims.recorded.apache [NAME...]   records sessions again (with a JDK and Maven)
"""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import string
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from random import Random

from ottla.cli.shims.__main__ import main
from tests.ottla.cli.shims.recorded import streams_member

HERE = Path(__file__).parent
SESSIONS = sorted(HERE.glob("*.txt"))
FILES = HERE / "files"
RUN_LETTERS = 3
#: The port of the listener with logins, SECURE in a session, as a distance from that of the other listener.
SECURE_STEP = 10
USER, PASSWORD = "alice", "alice-secret"


def node_properties(port: int) -> dict[str, str]:
    """Return the properties of a node that listens on this port, at which sessions are recorded or played."""
    listeners = f"PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{port + SECURE_STEP}"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{USER}",
        "group.initial.rebalance.delay.ms": "0",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{port + 100}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f'{login} user_{USER}="{PASSWORD}";',
        "delegation.token.secret.key": "planted-delegation-token-key",
        "ottla.advertised.release": "4.3.1",  # Apache Kafka ignores this property
    }


@dataclass
class Said:
    """The lines that a command printed, and its exit code."""

    code: int
    out: str
    err: str


@dataclass
class Step:
    """A command of a session, its input, and the recorded lines. Its comments are above it in the file."""

    comments: list[str]
    command: str
    stdin: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def text(self) -> str:
        return "\n".join([*self.comments, f"$ {self.command}", *(f"< {line}" for line in self.stdin), *self.lines])


#: A function that runs a tool by its name, with its arguments and its standard input.
Run = Callable[[str, list[str], str], Said]


def read_session(path: Path) -> list[Step]:
    steps: list[Step] = []
    comments: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith("$ "):
            steps.append(Step(comments, line[2:]))
            comments = []
        elif line.startswith("#"):
            comments.append(line)
        elif line.startswith("<"):
            steps[-1].stdin.append(line[2:])
        elif steps:
            steps[-1].lines.append(line)
    for step in steps:
        step.lines = _without_blanks_at_the_end(step.lines)
    return steps


def write_session(path: Path, steps: Iterable[Step]) -> None:
    path.write_text("\n\n".join(step.text() for step in steps) + "\n")


def _letters(steps: Iterable[Step]) -> str:
    """Return letters that are no word of the session, because every occurrence is replaced: "ids", or the "min" in "minValue".

    None of them is a digit of a UUID.
    """
    words = {word for step in steps for word in re.findall("[a-z]+", step.text() + step.text().lower())}
    while (letters := "".join(Random().choices(string.ascii_lowercase[6:], k=RUN_LETTERS))) in words:
        continue
    return letters


def play(steps: Iterable[Step], run: Run, server: str) -> Iterator[tuple[Step, list[str]]]:
    """Yield each step with the lines that it gives now, after the replacements."""
    steps = list(steps)
    letters = _letters(steps)
    with tempfile.TemporaryDirectory() as directory:
        host, _, port = server.partition(":")
        secure = f"{host}:{int(port) + SECURE_STEP}" if port else server
        names = {"SERVER": server, "SECURE": secure, "TMP": directory, "RUN": letters, "FILES": str(FILES)}
        pattern = re.compile("|".join((*names, "HMAC")))

        def fill(text: str) -> str:
            return pattern.sub(lambda found: names.get(found[0], found[0]), text)

        for step in steps:
            tool, *arguments = [fill(word) for word in shlex.split(step.command)]
            stdin = "".join(fill(line) + "\n" for line in step.stdin)
            if tool == "file":
                (Path(directory) / arguments[0]).write_text(stdin)
                yield step, []
                continue
            if tool in ("streams-join", "streams-leave"):
                streams_member.run(server, tool, arguments)
                yield step, []
                continue
            said = run(tool, arguments, stdin)
            if found := _SECRET.search(said.out):
                names["HMAC"] = found[0]
            yield step, shaped(said, server, directory, letters)


# -- Shapes -----------------------------------------------------------------------------------------------------------

#: The secret of a delegation token. HMAC in a command stands for the secret of the token that was printed last.
_SECRET = re.compile(r"(?<![\w+/])[\w+/]{86}==")
_SHAPES = (
    (_SECRET, "HMAC".ljust(88, "-")),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"), "DATE TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d\b"), "YYYY-MM-DDTHH:MM"),
    (re.compile(r"(?<![\w-])(?=\S*[A-Z0-9])[\w-]{22}(?![\w-])"), "ID".ljust(22, "-")),
    (re.compile(r"(?<!\.)\b\d{13}\b"), "TIME".ljust(13, "-")),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID".ljust(36, "-")),
    (re.compile(r"(localhost|127\.0\.0\.1)(:| +)\d+ *"), "SERVER "),
    (re.compile(r"SERVER +"), "SERVER "),
    (re.compile(r"(Epoch: |HighWatermark: ) *\d+"), r"\1N"),
    (re.compile(r'"/[^"]+/[^"]+"'), '"DIRECTORY"'),
    (re.compile(r"\d+ ms ago *"), "N ms ago "),
    (re.compile(r"\t\d{2,} *\t"), "\tN\t"),
)
#: Kafka prints these sets in the order of a hash table.
_SETS = re.compile(
    r"(?<=only supports operations \[)[A-Z_, ]+|(?<=Valid states are: ).*|(?<=following scenarios: \[).*(?=\])"
)
_ACL = "(principal="
#: Lines with measurements, whose numbers are different each time.
_MEASURED = re.compile(r"records/sec|Avg latency|Percentiles|timestamp.:|\d{4}-\d\d-\d\d \d\d:|\d+\t[\d.]+$")
_FRAME = re.compile(r"\s+at [\w.$/<>]+\(|Caused by: |\s+\.\.\. \d+ (more|common)|\s+Suppressed: ")
_LOG = re.compile(
    r"(WARN|ERROR|INFO) |Picked up JAVA_TOOL_OPTIONS|.*\(KIP-848\) is production-ready!|.* max latency\.$|"
    r".* org\.jline\.|WARNING: Unable to create a system terminal"
)
_EXCEPTION = re.compile(r"[a-z][\w.$]*\.[A-Z]\w*(?:Exception|Error): (.*)")
#: The class before the message of an exception that a tool does not catch.
_UNCAUGHT = re.compile(
    r'^(Exception in thread "main" )?(joptsimple|java\.lang|org\.apache\.kafka\.common\.config)\.\w+Exception: '
)
_HELP = re.compile(r"^Option .*Description|^usage: ")
#: The first line of the shell whose help is compared, too.
_SHELL = "[ Kafka Metadata Shell ]"
_USAGE_ERROR = re.compile(r"^[\w.-]+: error: ")


def shaped(said: Said, server: str, directory: str, letters: str) -> list[str]:
    out, err = (_without_java(text.splitlines()) for text in (said.out, said.err))
    lines = [*_without_blanks_at_the_end(_news(out, [])), *(f"! {line}" for line in _news(err, out) if line)]
    for index, line in enumerate(lines):
        line = line.replace(server, "SERVER").replace(directory, "TMP").replace(str(FILES), "FILES")
        line = re.sub(rf"(?<![a-zA-Z]){letters}(?![a-z])", "RUN", line)
        for pattern, text in _SHAPES:
            line = pattern.sub(text, line)
        if _MEASURED.search(line):
            line = re.sub(r"\d+([.:-]\d+)*", "N", line)
        line = _SETS.sub(lambda found: ", ".join(sorted(found[0].split(", "))), line)
        lines[index] = line.rstrip()
    lines = [
        line for is_acl, run in groupby(lines, _is_acl) for line in (sorted(map(str.strip, run)) if is_acl else run)
    ]
    lines = _without_blanks_at_the_end(lines)
    return [*lines, f"= {said.code}"] if said.code else lines


def _without_blanks_at_the_end(lines: list[str]) -> list[str]:
    count = len(lines)
    while count and not lines[count - 1]:
        count -= 1
    return lines[:count]


def _news(lines: list[str], before: list[str]) -> list[str]:
    """Return the lines without exceptions whose message was already printed."""
    kept: list[str] = []
    for line in lines:
        found = _EXCEPTION.fullmatch(line)
        if found is None or not any(known.endswith(found[1]) for known in (*before, *kept)):
            kept.append(_UNCAUGHT.sub("", line))
    return kept


def _is_acl(line: str) -> bool:
    return line.lstrip().startswith(_ACL)


def _without_java(lines: list[str]) -> list[str]:
    """Return the lines without the frames of stack traces, lines of a log, and help."""
    is_help, is_shell = False, _SHELL in lines
    kept: list[str] = []
    for line in lines:
        if _USAGE_ERROR.match(line):
            is_help = False
        elif _HELP.match(line) and not is_shell:
            is_help = True
        if not (is_help or _FRAME.match(line) or _LOG.match(line)):
            kept.append(line)
    return kept


# -- Ours -------------------------------------------------------------------------------------------------------------


def run_ours(tool: str, arguments: list[str], stdin: str) -> Said:
    """Run one of Ottla's tools, in this process if it ends by itself."""
    if tool == "first":
        return first_lines(int(arguments[0]), [sys.executable, "-m", "ottla.cli.shims", *arguments[1:]])
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), _stdin(stdin):
        try:
            code = main([tool, *arguments])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    return Said(code, *texts)


#: These files are never closed: the thread of a failed tool may still read a descriptor, which would then be another file's.
_INPUTS: list[io.TextIOWrapper] = []


def first_lines(count: int, command: list[str]) -> Said:
    """Run a tool in a process, and interrupt it after this many lines of output."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = [process.stdout.readline() for _ in range(count)]
        process.send_signal(signal.SIGINT)
        return Said(process.wait(), "".join(lines), process.stderr.read())


@contextmanager
def _stdin(text: str) -> Iterator[None]:
    """Make a file the standard input, because the tools read its descriptor."""
    before = sys.stdin
    descriptor, path = tempfile.mkstemp()
    os.unlink(path)
    os.write(descriptor, text.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    _INPUTS.append(io.TextIOWrapper(io.BufferedReader(io.FileIO(descriptor))))
    sys.stdin = _INPUTS[-1]
    try:
        yield
    finally:
        sys.stdin = before
