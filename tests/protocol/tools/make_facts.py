"""Writes data/message_facts.txt: what Apache Kafka's message specifications say, a line per field.

    python -m tests.protocol.tools.make_facts SPEC_DIR

SPEC_DIR is any folder with Kafka's *.json specifications in it or below. Only facts are copied (names, types, versions,
defaults), no descriptions. A message is a line without indent; its fields follow, nested ones further in.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

FACTS = Path(__file__).parent.parent / "data" / "message_facts.txt"
# Headers are written by hand; tiered storage has no declarations yet; this one is the key of control records.
LEFT_OUT = {"RequestHeader", "ResponseHeader", "ControlRecordTypeSchema"}


def main() -> None:
    messages = []
    for path in Path(sys.argv[1]).rglob("*.json"):
        spec = json.loads(re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE))
        if "fields" in spec and spec["name"] not in LEFT_OUT and "Remote" not in spec["name"]:
            messages.append(spec)
    messages.sort(key=lambda spec: (spec["type"], spec.get("apiKey", -1), spec["name"]))
    FACTS.write_text("".join(f"{line}\n" for spec in messages for line in message_lines(spec)))


def message_lines(spec: dict[str, Any]) -> list[str]:
    words = [spec["type"], spec["name"], f"versions={spec['validVersions']}", f"flexible={spec['flexibleVersions']}"]
    if "apiKey" in spec:
        words.append(f"key={spec['apiKey']}")
    if "listeners" in spec:
        words.append(f"listeners={','.join(sorted(spec['listeners']))}")
    if spec.get("latestVersionUnstable"):
        words.append("unstable")
    lines = [" ".join(words)]
    for common in spec.get("commonStructs", []):
        lines += [f" struct {common['name']}", *field_lines(common["fields"], 2)]
    return lines + field_lines(spec["fields"], 1)


def field_lines(fields: list[dict[str, Any]], depth: int) -> list[str]:
    lines = []
    for field in fields:
        versions = field.get("versions") or field["taggedVersions"]
        words = [field["name"], field["type"], f"versions={versions}"]
        if "nullableVersions" in field:
            words.append(f"nullable={field['nullableVersions']}")
        if "tag" in field:
            words.append(f"tag={field['tag']}")
        # the literal null means that nothing is given in Java, not that the default is null
        if field.get("default") is not None:
            words.append(f"default={json.dumps(field['default'])}")
        if field.get("ignorable") in (True, "true"):
            words.append("ignorable")
        lines += [" " * depth + " ".join(words), *field_lines(field.get("fields", []), depth + 1)]
    return lines


if __name__ == "__main__":
    main()
