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
        """Return the page and the first line with content, or its beginning: tables name a block by these."""
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
    """Return the words after `ottla` in each command of a block, without the shell's own syntax."""
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


PLUGIN = "tests/ottla/testing/test_plugin.py::test_the_example_of_the_documentation_works_as_it_is_printed"
HERE = "tests/ottla/cli/test_page_blocks.py::test_commands_of_pages_do_what_they_say"
#: Line by line, each with its reason if it is not run.
WALK = "tests/deploy/test_operations.py::test_each_line_of_the_page_is_run_or_says_why_not"
APPLY = "tests/ottla/cli/commands/test_apply.py::test_the_example_is_a_whole_file_that_a_secure_cluster_takes"


def key(page: str, first: str) -> tuple[str, str]:
    """Return the key by which a table names a block, for its first line or the beginning of it."""
    return page, first[:KEY_CHARS_MAX]


#: Blocks by their page and first line, and the test that runs them.
RUN_BY: dict[tuple[str, str], str] = {
    ("README.md", "# test_acknowledgements.py"): PLUGIN,
    ("README.md", "from confluent_kafka import Consumer, Producer"): (
        "tests/ottla/cli/test_page_blocks.py::test_the_client_of_the_first_page_reads_what_it_writes"
    ),
    ("docs/START.md", "ottla topic create orders -p 3"): HERE,
    key("docs/QUOTAS.md", "ottla quota set user alice producer_byte_rate=1048576 consumer_byte_rate=2097152"): HERE,
    ("docs/GITOPS.md", "# What the cluster shall have: ottla apply -f cluster.yml"): APPLY,
    **{key("docs/OPERATIONS.md", first): WALK for first in (
        "cd /var/lib/ottla && umask 077 && exec setpriv --reuid=ottla --regid=ottla",
        "useradd --system --home-dir /var/lib/ottla --shell /usr/sbin/nologin ottla",
        "ottla init cluster --nodes kafka-1,kafka-2,kafka-3 --secure --user alice", "scp cluster/nodes/kafka-1.tar root@kafka-1:",
        "tar -xf kafka-1.tar", "ottla cluster info", "ottla group describe shop --story --admin-port 9644",
        "runuser -u ottla -- /opt/ottla/bin/ottla cluster may-stop /etc/ottla/server.properties --wait 600",
        "cp -a /var/lib/ottla/data /backup/data", "systemctl enable --now ottla",
        "runuser -u ottla -- /opt/ottla/bin/ottla format /etc/ottla/server.properties --no-initial-controllers",
        "apt install ./dist/ottla_*.deb && sysctl --system", "apt install ./dist/ottla_*.deb", "ottla feature list",
    )},
    **{("docs/TESTING.md", f"# {name}"): PLUGIN for name in (
        "test_orders.py", "test_stock.py", "conftest.py", "test_outage.py", "test_stock_sold.py", "test_with_unittest.py",
        "test_with_asyncio.py", "test_with_container.py", "test_lost_acknowledgement.py", "test_typed.py", "test_versions.py",
    )},
    **{("docs/SPARK_START.md", name): "tests/pipeline/test_ten_minutes.py::test_the_page_leads_to_typed_rows" for name in (
        "ottla dev --nodes 1 --registry", "# write_orders.py", "# read_orders.py", "python write_orders.py",
        "+---+------+-----+---------+------+",
    )},
}  # fmt: skip

INDEX = "installs from an index"
HOSTS = "hosts of these names"
UNTIL = "runs until Ctrl-C"
#: Blocks that no test runs unchanged, and why; a path is that of a test with such commands. The commands of all blocks are
#: parsed, and blocks of Python are compiled.
NOT_RUN: dict[tuple[str, str], str] = {
    key(page, first): reason
    for page, rows in {
        "README.md": {
            "pip install '.[tables,sql]'": f"{INDEX}: tests/ottla/tables/test_broker_tables.py and test_sql.py have the other steps",
            "# In PySpark, with iceberg-spark-runtime among its packages, after `ottla dev --tables`": (
                "`make compat` runs it (tests/compat/spark/table_catalog.py)"
            ),
            "make run": "`make test` is what runs this; CI runs both",
        },
        "docs/CLI.md": {
            "ottla context set prod -b kafka-1:9092 --config prod.properties": f"{HOSTS}: tests/ottla/cli/commands has each command",
            "ottla top --admin-port 9644": "a screen until q: tests/ottla/cli/commands/test_top.py and test_doctor.py",
            "ottla group describe readers --story --admin-port 9644": "needs what happened before: tests/ottla/cli/commands/test_story.py",
            "ottla group lag readers": "goes on until Ctrl-C: tests/ottla/cli/commands/test_group.py",
            "ottla topic copy orders orders-copy": "two clusters: tests/ottla/cli/commands/test_topic_copy.py",
            "ottla move plan --even": "brokers 1 to 4: tests/ottla/cli/commands/test_move.py",
            "ottla perf produce -n 100000 -s 1000": "measures for minutes: tests/ottla/cli/commands/test_perf.py with fewer records",
            "ottla shims ~/.ottla/bin": "writes to the home: tests/ottla/cli/commands/test_shims.py in a folder",
        },
        "docs/CONSOLE.md": {
            "pip install '.[console]'": f"{INDEX}: tests/ottla/cli/test_dev.py starts the console beside a cluster",
            "ottla context set prod -b kafka-1:9092 --config prod.properties": f"{HOSTS}: tests/ottla/cli/commands/test_console.py",
            "ottla console --listen 0.0.0.0:9490 --login-file users --cert cert.pem --key key.pem": (
                "files of these names: tests/ottla/cli/commands/test_console.py makes its own"
            ),
        },
        "docs/EMULATE.md": {"ottla dev --nodes 1 --emulate 2.8": f"{UNTIL}: tests/ottla/testing/test_emulated.py"},
        "docs/GITOPS.md": {
            "ottla apply --example > cluster.yml": f"{APPLY} applies the example to a cluster with logins"
        },
        "docs/INSTALL.md": {
            "wsl --install -d Ubuntu": "Windows",
            "cd dist && sha256sum -c SHA256SUMS": "the files of a release: tests/ottla/test_distribution.py has the sums",
        },
        "docs/LOGGING.md": {
            "[2026-11-21 09:00:00,123] INFO Shrinking ISR from 1,2,3 to 1,2. Leader: (highWatermark": "a line of a log"
        },
        "docs/MIRROR.md": {
            "ottla dev --nodes 1 --dir west &": "tests/ottla/cli/test_dev.py has the ports of the page",
            "ottla topic create orders --partitions 4 --context west": "two clusters: tests/ottla/mirror/test_records.py",
            "ottla consume west.orders --from earliest --context east": "two clusters: tests/ottla/mirror/test_records.py",
            "ottla mirror offsets west --context east": "two clusters: tests/ottla/mirror/test_groups.py",
            "ottla mirror status west east --watch": f"{UNTIL}: tests/ottla/mirror/test_bad_input.py",
        },
        "docs/OPERATIONS.md": {
            "TIME                  NODE  CAUSE          CLIENT              DECISION": "what a command prints"
        },
        "docs/PIPELINE.md": {
            "make demo": "minutes of Spark: tests/pipeline/test_demo.py",
            "ottla dev --secure --dir demo": f"{UNTIL}: tests/pipeline has a secure cluster",
            "SPARK=$(python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')": "tests/pipeline/test_submit.py",
            "ottla-pipeline run all --master spark://host:7077 --config p": "a cluster of Spark: tests/pipeline/test_submit.py",
        },
        "docs/REGISTRY.md": {
            "pip install '.[registry]'": f"{INDEX}: tests/ottla/cli/test_dev.py starts the registry beside a cluster",
            "curl -s localhost:8081/subjects/orders-value/versions -H 'Content-Type: application/json' \\": (
                "port 8081: tests/ottla/registry/test_rest.py has the requests"
            ),
            "from confluent_kafka import Producer": "port 8081: tests/ottla/registry/test_stock_serializers.py has the steps",
            "ottla consume orders --registry http://localhost:8081": "port 8081: tests/ottla/cli/commands/test_registry.py",
            "ottla registry -b kafka1:9092 --listen 0.0.0.0:8081 --advertise registry1:8081": HOSTS,
            "ottla registry --cert server.pem --key server.key --users users --acl permissions": "tests/ottla/registry/test_access.py has TLS and logins",
            "# user   subjects     operations": "a file: tests/ottla/registry/test_rights.py reads such",
        },
        "docs/SCALE.md": {
            "ottla start server.properties --processes 4": f"{UNTIL}: tests/ottla/processes/test_supervisor.py"
        },
        "docs/SECURITY.md": {
            "ottla acl add alice write topic:orders --config DIR/clients/admin.properties": "tests/ottla/cli/commands/test_secure.py",
            "listeners=CLIENTS://:9092,CONTROLLER://:9093": "tests/server/sasl has a cluster with PLAIN and SCRAM",
            "sasl.enabled.mechanisms=GSSAPI": "a KDC: tests/server/sasl/test_gssapi_login.py",
        },
        "docs/SNAPSHOTS.md": {
            "ottla dev --dir demo": f"{UNTIL}: tests/ottla/local/snapshots/test_commands.py",
            "ottla snapshot list --dir demo": f"{UNTIL}: tests/ottla/local/snapshots/test_commands.py and test_rewind.py",
        },
        "docs/SPARK.md": {
            "pip install . 'pyspark>=4.0,<4.1' 'pyarrow<21' 'pandas<3'": f"{INDEX}: tests/pipeline/test_source.py has the steps",
            'spark.read.format("ottla").option("segments", "segments:///var/lib/ottla/data")': "tests/pipeline/test_source.py, on a node of its own",
            'orders = (spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092")': "SPARK_START.md's test has it with a registry",
            'query = (frame.writeStream.format("ottla").option("kafka.bootstrap.servers", "localhost:9092")': "tests/pipeline/test_source.py",
        },
        "docs/SPARK_START.md": {"python3 -m venv ~/ottla-spark": "installs 400 MB from an index"},
        "docs/START.md": {
            "python3 -m venv /opt/ottla": f"{INDEX}: tests/plain does it with the wheel",
            "ottla dev": f"{UNTIL}: tests/ottla/cli/test_dev.py",
        },
        "docs/TABLES.md": {
            "pip install '.[tables]' 'duckdb-ext[iceberg]' duckdb-ext-avr": (
                f"{INDEX}: tests/ottla/tables/test_broker_tables.py has the other steps"
            ),
            "spark = (": "`make compat ARGS=readers` has it (tests/compat/lakehouse/matrix.py)",
            "ottla table export orders --log-dir ./cluster/node-1/data --to ./lake --value string": "tests/ottla/tables/test_export.py",
            'ottla sql "select _kafka.partition, count(*), max(_kafka.timestamp) from orders group by 1"': "tests/ottla/tables/test_sql.py",
            "ottla table serve --at ./lake": f"{UNTIL}: tests/ottla/tables/test_catalog.py",
            "ottla table export orders --log-dir ./data --to s3://lake/kafka \\": "an S3 store: tests/ottla/tables/test_stores.py",
            "select * from orders": "tests/ottla/tables/test_set_back.py",
            "ottla table status orders --at ./lake --log-dir ./cluster/node-1/data": "tests/ottla/tables/test_export.py",
        },
        "docs/TIERS.md": {
            "ottla dev --nodes 1 --tiers &": f"{UNTIL}: tests/ottla/cli/test_dev.py",
            "TOPIC   PARTITION  LEADER  LOG-START  LOCAL-START  COPIED-TO": "what a command prints",
        },
        "docs/TRAFFIC.md": {
            "ottla dev --nodes 1 &": f"{UNTIL}: tests/ottla/cli/test_dev.py",
            "ottla topic create orders -b localhost:9192": "port 9192: tests/ottla/traffic/test_record_command.py",
            "ottla dev --nodes 1 --dir other --base-port 19092 &": "ports of the page: tests/ottla/traffic/test_replay.py",
            "ottla shadow --listen localhost:9192 --to localhost:9092 --shado": f"{UNTIL}: tests/ottla/traffic/test_shadow.py",
            "CreateTopics v7 #2 of connection 1: topics['orders'].replicat": "what a command prints",
        },
        "docs/TESTING.md": {
            "ottla dev --faults --nodes 1 --base-port 9092": f"{UNTIL}: tests/ottla/testing/test_control_port.py",
            **dict.fromkeys(
                ("# faults.sh", "// Faults.java", "// faults.go", "// faults.mjs"),
                "`make compat ARGS=faults` runs it with the client of its language",
            ),
        },
    }.items()
    for first, reason in rows.items()
}
#: Words of pages that stand for a value.
PLACEHOLDERS = {"LEVEL": "1"}
