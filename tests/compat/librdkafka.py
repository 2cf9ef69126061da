"""librdkafka's own broker tests (2.15.1). Its sources come with an npm package; built once into the user's cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.apache_kafka import jars
from tools.apache_kafka.programs import TOOLS, java_command

PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
HOME = jars.CACHE / "librdkafka-2.15.1"
TESTS = HOME / "package/deps/librdkafka/tests"
BUILD_SECONDS_MAX = 3600  # it takes two minutes on two quiet cores
TEST_SECONDS_MAX = 240
#: The properties of the nodes in each scenario; librdkafka itself knows the first two. 0089, 0102 and 0118 want both members in
#: their first rebalance, as with Kafka's default delay of 3 s; with that delay 0081 would exceed its own limit of 180 s.
SCENARIOS: dict[str, dict[str, str]] = {
    "default": {"auto_create_topics_enable": "true"},
    "noautocreate": {"auto_create_topics_enable": "false"},
    "rebalance-delay": {"auto_create_topics_enable": "true", "group_initial_rebalance_delay_ms": "3000"},
}
MARKS = {"full", "long", "sockem", "noautocreate", "rebalance-delay"}
ONLY = "only:"
SINCE, NOT_AT = "since:", "not-at:"
SUMMARY = re.compile(r"\| *(\d{4})_\S* *\| *([A-Z ]*[A-Z]) *\| *([\d.]+)s *\| *(.*)")


@dataclass(frozen=True)
class Case:
    """A test: its number, and whether it runs in full (quick mode silently leaves out most sub-tests of some)."""

    number: str
    scenario: str = "default"
    full: bool = False
    long: bool = False
    sockem: bool = False
    #: The variants of secured listeners that it runs with; all if there is none.
    variants: frozenset[str] = frozenset()
    #: Only sub-tests whose names contain this are run.
    only: str = ""
    #: The first release of Apache Kafka that has what the test needs, such as 2.4.
    since: str = ""
    #: A release without what the test needs, although older ones have it.
    not_at: str = ""

    @property
    def name(self) -> str:
        return f"{self.number}:{self.only}" if self.only else self.number


@dataclass(frozen=True)
class Server:
    """The address to which the tests connect, with the settings that clients need there."""

    bootstrap: str
    settings: Mapping[str, str] = field(default_factory=dict)
    #: The address for Apache Kafka's tools, which the tests start without settings.
    plaintext: str = ""
    #: The release of Apache Kafka that it is, or stands in for.
    version: str = jars.VERSION


@dataclass(frozen=True)
class Outcome:
    name: str
    result: str  # PASS, FAIL, SKIP or TIMEOUT
    seconds: float
    reason: str = ""


def missing() -> str | None:
    """Return the reason why the suite cannot run here, or None."""
    for command in ("gcc", "g++", "make", "npm"):
        if not (HOME / "built").exists() and shutil.which(command) is None:
            return f"{command} is needed to build librdkafka"
    return None


def build() -> None:
    """Fetch and build librdkafka and its test runner, once."""
    if (HOME / "built").exists():
        return
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    source = TESTS.parent
    script = f"""set -e
npm pack {PACKAGE} && tar xzf *.tgz && rm *.tgz
mkdir deb && cd deb
for p in libzstd-dev rapidjson-dev; do apt-get download $p && dpkg -x ${{p}}_*.deb x || echo "without $p"; done
inc=; [ ! -d x/usr/include ] || inc="-isystem$PWD/x/usr/include"
lib=$(find "$PWD/x" -name libzstd.a 2>/dev/null | head -1); cd {source}
./configure ${{inc:+--CPPFLAGS="$inc"}} ${{lib:+--LDFLAGS="-L$(dirname "$lib")"}}
make -j2 libs && make -j2 -C tests build"""
    log = HOME / "build.log"
    with log.open("wb") as output:
        done = subprocess.run(["bash", "-c", script], cwd=HOME, stdout=output, stderr=output, timeout=BUILD_SECONDS_MAX)
    if done.returncode != 0:
        raise RuntimeError(f"librdkafka did not build, see {log}")
    (HOME / "built").touch()


def kafka_home() -> Path | None:
    """Return a folder laid out like a release, for tests that call its scripts; None where Apache Kafka cannot be had."""
    if jars.missing():
        return None
    home = jars.CACHE / "kafka-home"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    libs = home / "libs"
    if not libs.exists():
        libs.symlink_to(jars.require(jars.libs_of(jars.VERSION)))
    for name in TOOLS:
        script = home / "bin" / f"{name}.sh"
        command = " ".join(f"'{word}'" for word in java_command(TOOLS[name]))
        # Before 3.0 the tests pass the address of ZooKeeper, which is the broker's here.
        arguments = 'for a; do shift; [ "$a" = --zookeeper ] && a=--bootstrap-server; set -- "$@" "$a"; done'
        script.write_text(f'#!/bin/sh\n{arguments}\nexec {command} "$@"\n')
        script.chmod(0o755)
    # The class path has the tests' own Java programs, by the variable of the caller.
    run_class = home / "bin/kafka-run-class.sh"
    run_class.write_text(f'#!/bin/sh\nexec java -cp "$CLASSPATH:{libs}/*" "$@"\n')
    run_class.chmod(0o755)
    return home


def run(case: Case, server: Server, logs: Path, group_protocol: str = "classic") -> Outcome:
    """Run one test in a process of its own. Its consumers speak `group_protocol`."""
    conf = logs / f"{case.name}.conf"
    settings = {"bootstrap.servers": server.bootstrap, "test.topic.prefix": f"rdk{time.time_ns()}", **server.settings}
    if case.full or case.long:
        settings["test.timeout.multiplier"] = "2"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    limit = TEST_SECONDS_MAX * (2 if case.full or case.long else 1) * (4 if case.long else 1)
    args = ["./test-runner", "-p1", "-L", *([] if case.sockem else ["-E"]), *([] if case.full else ["-Q"])]
    env = {
        **os.environ,
        "TEST_SCENARIO": "noautocreate" if case.scenario == "noautocreate" else "default",
        "TESTS": case.number, "RDKAFKA_TEST_CONF": str(conf), "TEST_KAFKA_VERSION": server.version,
        "TEST_CONSUMER_GROUP_PROTOCOL": group_protocol,
        "LD_LIBRARY_PATH": "../src:../src-cpp", "BROKERS": server.plaintext or server.bootstrap,
        "ZK_ADDRESS": server.plaintext or server.bootstrap,
    }  # fmt: skip
    if case.only:
        env["SUBTESTS"] = case.only
    if home := kafka_home():
        env["KAFKA_PATH"] = str(home)
    log = logs / f"{case.name}.log"
    begin = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(args, cwd=TESTS, env=env, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return Outcome(case.name, "TIMEOUT", limit, f"after {limit} s")
    return _judge(case, code, time.monotonic() - begin, log)


def _judge(case: Case, code: int, seconds: float, log: Path) -> Outcome:
    text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(errors="replace"))
    rows = [found.groups() for line in text.splitlines() if (found := SUMMARY.search(line)) and found[1] == case.number]
    if "timed out (timeout set to" in text:
        return Outcome(case.name, "TIMEOUT", seconds, "the test's own limit")
    if code != 0 or any(result in ("FAILED", "RUNNING") for _, result, _, _ in rows):
        reasons = re.findall(r'^### Test ".*" failed at .*###\n(.*)', text, re.MULTILINE)
        return Outcome(case.name, "FAIL", seconds, reasons[0][:200] if reasons else f"exit code {code}")
    if any(result == "PASSED" and float(took) >= 0.005 for _, result, took, _ in rows):
        return Outcome(case.name, "PASS", seconds)
    return Outcome(case.name, "SKIP", seconds, next((why.strip() for _, _, _, why in rows), "did not run"))


def read_allow_list(path: Path) -> Iterator[Case]:
    """Yield the cases of an allow-list. Its lines are `NUMBER [full] [long] [sockem] [SCENARIO] [only:NAME] [since:RELEASE]
    [not-at:RELEASE] [VARIANT ...]`; # starts a comment.
    """
    for line in path.read_text().splitlines():
        words = line.partition("#")[0].split()
        if words:
            marks = set(words[1:])
            scenario = next((name for name in SCENARIOS if name in marks), "default")
            only, since, not_at = (next((m for m in marks if m.startswith(each)), "") for each in (ONLY, SINCE, NOT_AT))
            variants = frozenset(marks - MARKS - {only, since, not_at})
            full, long, sockem = ("full" in marks, "long" in marks, "sockem" in marks)
            named = (only.removeprefix(ONLY), since.removeprefix(SINCE), not_at.removeprefix(NOT_AT))
            yield Case(words[0], scenario, full, long, sockem, variants, *named)
