"""The blocks of code of the pages that users read, and the words of `ottla` in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.rules.sources import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
KEY_CHARS_MAX = 60
_FENCE = re.compile(r"^( *)```(\S*)\s*$")


class PageBlock(NamedTuple):
    """A block of code: its page, the language that it names, and its lines without their margin."""

    page: str
    language: str
    lines: list[str]

    @property
    def key(self) -> tuple[str, str]:
        """Return the page and the beginning of the first line that says something: what a table names a block by."""
        first = next(line.strip() for line in self.lines if line.strip())
        return self.page, re.sub(r"\s+#\s.*$", "", first)[:KEY_CHARS_MAX]


def blocks_of(page: Path) -> Iterator[PageBlock]:
    """Yield the fenced and the indented blocks of a page; an indented one begins after an empty line or a text, and not in a list."""
    name, lines = str(page.relative_to(ROOT)), page.read_text().split("\n")
    at, in_list = 0, False
    while at < len(lines):
        if opened := _FENCE.match(lines[at]):
            end = next(i for i in range(at + 1, len(lines)) if _FENCE.match(lines[i]))
            yield PageBlock(name, opened[2], [line.removeprefix(opened[1]) for line in lines[at + 1 : end]])
            at = end
        elif lines[at].startswith("    ") and not in_list:
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or (not lines[end] and _goes_on(lines, end))):
                end += 1
            yield PageBlock(name, "", [line[4:] for line in lines[at:end]])
            at = end - 1
        elif lines[at].startswith("      ") and in_list and not lines[at - 1]:
            end = next((i for i in range(at, len(lines)) if not lines[i].startswith("      ")), len(lines))
            yield PageBlock(name, "", [line.strip() for line in lines[at:end]])
            at = end - 1
        elif lines[at]:
            in_list = bool(re.match(r" *(?:[-*]|\d+\.) ", lines[at])) or (in_list and lines[at].startswith("  "))
        at += 1


def _goes_on(lines: list[str], at: int) -> bool:
    return at + 1 < len(lines) and lines[at + 1].startswith("    ")


def commands_of(block: PageBlock) -> list[list[str]]:
    """Return the words behind `ottla` of each command of a block, without what the shell does with them."""
    found = []
    text = re.sub(r"\\\n\s*", " ", "\n".join(block.lines))
    for line in text.split("\n"):
        for part in re.split(r"\s*(?:&&|\|\||;|\||(?<=\))\s)\s*", _without_comment(line)):
            words = re.sub(r"\s2?[<>](?: \S+|/\S+)|\s&$", "", part).strip()
            match = re.match(r"(?:\S+=\S+ +)*(?:sudo (?:-u \S+ )?|runuser -u \S+ -- )?(?:\S*/)?ottla +(?!=)(.*)", words)
            if match and block.language in ("", "sh", "bash", "console"):
                try:
                    found.append(shlex.split(match[1]))
                except ValueError:  # a quote that the shell closes in another part
                    continue
    return found


def _without_comment(line: str) -> str:
    return re.sub(r"\s+#\s.*$", "", line)


ALL = ""
PLUGIN = "tests/ottla/testing/test_plugin.py::test_the_example_of_the_documentation_works_as_it_is_printed"
HERE = "tests/ottla/cli/test_page_blocks.py::test_commands_of_pages_do_what_they_say"
#: Blocks by their page and first line, and the test that runs them.
RUN_BY: dict[tuple[str, str], str] = {
    ("README.md", "# test_acknowledgements.py"): PLUGIN,
    ("README.md", "from confluent_kafka import Consumer, Producer"): (
        "tests/ottla/cli/test_page_blocks.py::test_the_client_of_the_first_page_reads_what_it_writes"
    ),
    ("docs/START.md", "ottla topic create orders -p 3"): HERE,
    ("docs/QUOTAS.md", "ottla quota set user alice producer_byte_rate=1048576 consumer_byte_rate=2097152"[:KEY_CHARS_MAX]): HERE,
    **{("docs/TESTING.md", f"# {name}"): PLUGIN for name in (
        "test_orders.py", "test_stock.py", "conftest.py", "test_outage.py", "test_stock_sold.py", "test_with_unittest.py",
        "test_with_asyncio.py", "test_with_container.py", "test_lost_acknowledgement.py", "test_typed.py",
    )},
    **{("docs/SPARK_START.md", name): "tests/pipeline/test_ten_minutes.py::test_the_page_leads_to_typed_rows" for name in (
        "ottla dev --nodes 1 --registry", "# write_orders.py", "# read_orders.py", "python write_orders.py",
        "+---+------+-----+---------+------+",
    )},
}  # fmt: skip

#: Blocks that no test runs as they stand, and why: by page for all others of the page, or by page and first line. The commands of all
#: blocks are parsed.
NOT_RUN: dict[tuple[str, str], str] = {
    (
        "README.md",
        "pip install '.[tables,sql]'",
    ): "tests/ottla/tables/test_broker_tables.py and test_sql.py have its steps, without waits",
    (
        "README.md",
        "# In PySpark, with iceberg-spark-runtime among its packages,",
    ): "`make compat` runs it (tests/compat/spark/table_catalog.py)",
    ("README.md", "make run"): "`make test` is what runs this; CI runs both",
    (
        "docs/CLI.md",
        ALL,
    ): "the commands at work are in tests/ottla/cli/commands; these need clusters and files by these names",
    ("docs/CONSOLE.md", ALL): "installs from an index; tests/ottla/cli/commands/test_console.py starts the console",
    ("docs/GITOPS.md", ALL): "needs a file of that name: tests/ottla/cli/commands/test_apply.py applies files",
    ("docs/INSTALL.md", ALL): "Windows, and the files of a release: tests/ottla/test_distribution.py has the sums",
    ("docs/LOGGING.md", ALL): "a line of a log",
    (
        "docs/MIRROR.md",
        ALL,
    ): "two clusters: tests/ottla/mirror has the commands, tests/ottla/cli/test_dev.py the ports of the page",
    (
        "docs/OPERATIONS.md",
        ALL,
    ): "changes users, services and disks of a machine: tests/ottla/local has the files that it makes",
    ("docs/PIPELINE.md", ALL): "minutes of Spark: tests/pipeline/test_demo.py and test_submit.py",
    (
        "docs/REGISTRY.md",
        ALL,
    ): "tests/ottla/registry/test_stock_serializers.py has the steps, SPARK_START.md's test the same from a page",
    ("docs/SCALE.md", ALL): "runs until Ctrl-C: tests/ottla/processes",
    ("docs/SECURITY.md", ALL): "a cluster with TLS and Kerberos: tests/ottla/local and tests/server/sasl",
    ("docs/SNAPSHOTS.md", ALL): "tests/ottla/local/snapshots",
    ("docs/SPARK.md", ALL): "tests/pipeline/test_source.py and test_connector.py; ports and folders are other ones",
    ("docs/SPARK_START.md", "python3 -m venv ~/ottla-spark"): "installs 400 MB from an index",
    ("docs/START.md", "python3 -m venv /opt/ottla"): "installs from an index: tests/plain does it with the wheel",
    ("docs/START.md", "ottla dev"): "runs until Ctrl-C: tests/ottla/cli/test_dev.py",
    (
        "docs/TABLES.md",
        ALL,
    ): "tests/ottla/tables: test_broker_tables.py and test_export.py with nodes of their own, test_stores.py with an S3 server",
    (
        "docs/TESTING.md",
        "ottla dev --faults --nodes 1 --base-port 9092",
    ): "runs until Ctrl-C: tests/ottla/testing/test_control_port.py",
    **{
        ("docs/TESTING.md", name): "`make compat ARGS=faults` runs it with the client of its language"
        for name in ("# faults.sh", "// Faults.java", "// faults.go", "// faults.mjs")
    },
}
#: Words of pages that stand for a value.
PLACEHOLDERS = {"LEVEL": "1"}
