"""create-topics SERVERS TOPICS: it creates the topics of KAFKA_CREATE_TOPICS once the node serves, as wurstmeister's image
does.

TOPICS is `name:partitions:copies[:cleanup.policy]`, separated by commas. Existing topics stay as they are.
"""

from __future__ import annotations

import argparse
import re

from ottla.cli.shims import ready, topics

#: How long to wait until the node serves.
START_S_MAX = 120
_TOPIC = re.compile(r"(?P<name>[^:]+):(?P<partitions>\d+):(?P<copies>\d+)(:(?P<policy>[^:]+))?")


def topic_arguments(text: str) -> list[str]:
    """Return the arguments of `kafka-topics` for one topic of the list. Raise ValueError if it has another form."""
    found = _TOPIC.fullmatch(text)
    if found is None:
        raise ValueError(f"{text} is not name:partitions:copies or name:partitions:copies:policy")
    words = ["--topic", found["name"], "--partitions", found["partitions"], "--replication-factor", found["copies"]]
    return [*words, "--config", f"cleanup.policy={found['policy']}"] if found["policy"] else words


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="create-topics")
    parser.add_argument("servers")
    parser.add_argument("topics")
    options = parser.parse_args(arguments)
    if ready.main(["-b", options.servers, "1", str(START_S_MAX)]):
        return 1
    failures = 0
    for text in options.topics.split(","):
        try:
            words = topic_arguments(text)
        except ValueError as fault:
            print(f"Topic not created: {fault}", flush=True)
            failures += 1
            continue
        failures += topics.main(["--bootstrap-server", options.servers, "--create", "--if-not-exists", *words])
    return 1 if failures else 0
