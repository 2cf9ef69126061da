"""kcat: produce, consume, list, query offsets, and read with a group."""

import json
import subprocess

from checks import BOOTSTRAP, RUN, check, equal, run

TOPIC = f"kcat-{RUN}"


def kcat(*arguments: str, stdin: str = "") -> str:
    command = ["kcat", "-b", BOOTSTRAP, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise AssertionError(done.stderr[-300:])
    return done.stdout


def main() -> None:
    with check("produce with keys and headers"):
        kcat("-P", "-t", TOPIC, "-K:", "-H", "h=1", stdin="a:one\nb:two\nc:three\n")
    with check("consume to the end, with a format"):
        lines = kcat("-C", "-t", TOPIC, "-o", "beginning", "-e", "-q", "-f", "%k=%s %h\n").split("\n")
        equal(sorted(filter(None, lines)), ["a=one h=1", "b=two h=1", "c=three h=1"])
    with check("list the topic as JSON"):
        found = json.loads(kcat("-L", "-J", "-t", TOPIC))
        equal([topic["topic"] for topic in found["topics"]], [TOPIC])
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        with check(f"produce and consume with {codec}"):
            name = f"{TOPIC}-{codec}"
            kcat("-P", "-t", name, "-z", codec, stdin="x" * 500 + "\n")
            equal(kcat("-C", "-t", name, "-o", "beginning", "-e", "-q"), "x" * 500 + "\n")
    with check("a tombstone is null"):
        kcat("-P", "-t", f"{TOPIC}-null", "-K:", "-Z", stdin="k:\n")
        equal(kcat("-C", "-t", f"{TOPIC}-null", "-o", "beginning", "-e", "-q", "-f", "%k %S\n"), "k -1\n")
    with check("query offsets by time"):
        end = kcat("-Q", "-t", f"{TOPIC}-gzip:0:-1")
        equal(TOPIC in end and "offset" in end, True)
    with check("consume with a group"):
        out = kcat("-G", f"group-{RUN}", "-X", "auto.offset.reset=earliest", "-c", "3", "-q", TOPIC)
        equal(sorted(out.split()), ["one", "three", "two"])
    with check("acks=0"):
        kcat("-P", "-t", TOPIC, "-X", "acks=0", stdin="unacknowledged\n")


run(main)
