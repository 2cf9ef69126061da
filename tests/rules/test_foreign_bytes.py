"""Each HTTP server and each decoder of foreign bytes is in a table here, with the tests of its hostile inputs, or with the
reason why it needs none. A new one without a row makes this test fail.
"""

from __future__ import annotations

import ast
import re

from tests.ottla.web.servers import REAL
from tests.rules.sources import ROOT, Source, dotted, nodes_of, pipeline_sources, sources

SERVER = re.compile(
    r"(.*\.)?(start_server|start_unix_server|create_server|create_unix_server|HTTPServer|ThreadingHTTPServer|BaseHTTPRequestHandler|"
    r"HttpServer|AdminServer|MachineAdmin|Server)|.*network\.listen"
)
DECODER = re.compile(
    r"(json|pickle|marshal|tomllib)\.loads?|json\.JSONDecoder|yaml\.\w*load\w*|fastavro\.(schemaless_)?reader|csv\.reader|"
    r".*\.(ParseFromString|FromString|MergeFromString)"
)

#: Files with an HTTP server or another one, and the tests with its slow and malformed clients.
SERVERS = {
    "ottla/console/server.py": "tests/ottla/web/test_hostile_http.py",
    "ottla/cli/commands/mirror.py": "tests/ottla/web/test_hostile_http.py",
    "ottla/node/admin.py": "tests/server/test_admin.py",
    "ottla/processes/admin.py": "tests/ottla/web/test_hostile_http.py",
    "ottla/processes/supervisor.py": "tests/server/test_admin.py",
    "ottla/registry/server.py": "tests/ottla/web/test_hostile_http.py",
    "ottla/tables/catalog_server.py": "tests/ottla/web/test_hostile_http.py",
    "ottla/testing/control_port.py": "tests/ottla/web/test_hostile_http.py",
    "ottla/traffic/proxy.py": "tests/ottla/traffic/test_proxy.py",
    "ottla/testing/links.py": "tests/ottla/testing",  # a proxy for tests
    "ottla/web/server.py": "tests/ottla/web/test_connections.py",
    "server/admin.py": "tests/ottla/web/test_hostile_http.py",
    "server/network/listener.py": "tests/fuzz/wire.py",
    "server/transport.py": "tests/fuzz/wire.py",
}

#: Bytes of the user who runs the program: files, options, other processes.
OWN = "own"
#: Foreign bytes that are decoded in a process with limits (registry/guarded_process.py).
GUARDED = "guarded"
#: Foreign bytes in JSON: the parser is linear and ends with RecursionError or ValueError, which the file has to handle.
JSON_OF_OTHERS = "json of others"
#: Foreign bytes with a schema that is checked first: it is neither recursive nor has items of no bytes.
SCHEMA_LOOKED_AT = "schema looked at"

DECODERS = {
    "controller/raft/election_store.py": OWN,
    "ottla/client/move_plans.py": OWN,
    "ottla/columns/avro/column.py": SCHEMA_LOOKED_AT,
    "ottla/columns/avro/tree.py": SCHEMA_LOOKED_AT,
    "ottla/columns/json_types.py": JSON_OF_OTHERS,
    "ottla/columns/protobuf_column.py": "the library's parser, which ends at a depth of 100: tests/ottla/columns/test_protobuf_column.py",
    "server/installation.py": OWN,
    "broker/tiers/rsm_layout.py": JSON_OF_OTHERS,
    "ottla/cli/contexts.py": OWN,
    "ottla/cli/commands/shadow.py": OWN,
    "ottla/cli/declared.py": OWN,
    "ottla/local/former_addresses.py": OWN,
    "ottla/local/running.py": OWN,
    "ottla/cli/output.py": OWN,
    "ottla/client/values.py": OWN,
    "ottla/client/admin_listeners.py": JSON_OF_OTHERS,
    "ottla/cli/shims/json_files.py": OWN,
    "ottla/cli/shims/offset_resets.py": OWN,
    "ottla/local/snapshots/layout.py": OWN,
    "ottla/local/snapshots/rewinding.py": OWN,
    "ottla/local/snapshots/set_backs.py": OWN,
    "ottla/console/pages/groups.py": JSON_OF_OTHERS,
    "ottla/console/pages/produce.py": JSON_OF_OTHERS,
    "ottla/console/record_view.py": JSON_OF_OTHERS,
    "ottla/console/json_path.py": JSON_OF_OTHERS,
    "ottla/console/schema_texts.py": JSON_OF_OTHERS,
    "ottla/console/table_process.py": GUARDED,
    "ottla/console/value_filter.py": GUARDED,
    "ottla/mirror/membership.py": JSON_OF_OTHERS,
    "ottla/mirror/opposite.py": JSON_OF_OTHERS,
    "ottla/mirror/positions.py": JSON_OF_OTHERS,
    "ottla/registry/avro_json.py": GUARDED,
    "ottla/registry/avro_values.py": GUARDED,
    "ottla/registry/checking.py": GUARDED,
    "ottla/registry/client.py": JSON_OF_OTHERS,
    "ottla/tables/decisions.py": JSON_OF_OTHERS,
    "ottla/tables/delta_log.py": JSON_OF_OTHERS,
    "ottla/tables/partitioning.py": JSON_OF_OTHERS,
    "ottla/tables/table_location.py": JSON_OF_OTHERS,
    "ottla/registry/decoder.py": GUARDED,
    "ottla/registry/encoder.py": GUARDED,
    "ottla/registry/election.py": JSON_OF_OTHERS,
    "ottla/registry/formats/java_json.py": GUARDED,
    "ottla/registry/formats/proto_from_descriptor.py": GUARDED,
    "ottla/registry/formats/proto_pool.py": GUARDED,
    "ottla/registry/members.py": OWN,  # an instance has signed it
    "ottla/registry/numbers.py": "its callers: tests/ottla/registry/test_numbers.py",
    "ottla/registry/registry_state.py": JSON_OF_OTHERS,
    "ottla/registry/values.py": GUARDED,
    "ottla/spark/options.py": OWN,
    "ottla/spark/sink/decisions.py": JSON_OF_OTHERS,
    "ottla/testing/control_port.py": JSON_OF_OTHERS,
    "ottla/testing/inside/faults.py": OWN,
    "ottla/testing/inside/nursery.py": OWN,
    "pipeline/config.py": OWN,
    "pipeline/delta.py": OWN,
    "pipeline/demo.py": OWN,
    "pipeline/events.py": JSON_OF_OTHERS,  # its Avro uses only the shipped schemas
    "pipeline/gold.py": OWN,
    "pipeline/progress.py": OWN,
    "pipeline/report.py": OWN,
    "pipeline/broker_table.py": OWN,
    "pipeline/tables.py": OWN,
    "pipeline/topics.py": OWN,
    "pipeline/truth.py": OWN,
    "pipeline/upsert.py": OWN,
    "pipeline/verify.py": OWN,
    "server/sasl/identity_provider.py": JSON_OF_OTHERS,
    "server/sasl/oauthbearer.py": JSON_OF_OTHERS,
    "server/worker_process.py": OWN,
    "storage/directories/log_dirs.py": OWN,
}


def used(source: Source, wanted: re.Pattern[str]) -> bool:
    names = (dotted(node) for node in nodes_of(source.tree) if isinstance(node, ast.Attribute | ast.Name))
    return any(wanted.fullmatch(name) for name in names)


def all_sources() -> tuple[Source, ...]:
    return (*sources(), *pipeline_sources())


def has_server(source: Source) -> bool:
    """A server is made, or a class of one: its name alone is also a type."""
    made = [node.func for node in nodes_of(source.tree) if isinstance(node, ast.Call)]
    made += [base for node in nodes_of(source.tree) if isinstance(node, ast.ClassDef) for base in node.bases]
    names = [dotted(each) for each in made]
    return any(SERVER.fullmatch(name) and not name.endswith("logging.Server") for name in names)


def test_each_server_has_tests_of_hostile_clients() -> None:
    found = {source.path for source in all_sources() if has_server(source)}
    assert found == set(SERVERS), "a row of SERVERS is missing, or one too many"
    for path in SERVERS.values():
        assert (ROOT / path).exists(), path
    of_table = {path for path, tests in SERVERS.items() if tests == "tests/ottla/web/test_hostile_http.py"}
    assert of_table == set(REAL), "a row of tests/ottla/web/servers.py is missing, or one too many"


def test_each_decoder_says_whose_bytes_it_reads_and_what_bounds_them() -> None:
    found = {source.path for source in all_sources() if used(source, DECODER)}
    assert found | {"ottla/registry/decoder.py"} == set(DECODERS), "a row of DECODERS is missing, or one too many"


def test_who_reads_json_of_others_takes_what_its_parser_raises_for_depth() -> None:
    wrong = [
        source.path
        for source in all_sources()
        if DECODERS.get(source.path) == JSON_OF_OTHERS
        and not any(isinstance(node, ast.Name) and node.id == "RecursionError" for node in nodes_of(source.tree))
    ]
    assert not wrong, f"RecursionError is no ValueError, and ends the task: {wrong}"


def test_a_module_of_guarded_decoders_is_imported_in_the_process_alone() -> None:
    """No module of the console or of the command line itself calls a decoder of values."""
    wrong = [
        source.path
        for source in sources()
        if not source.path.startswith(("ottla/registry/", "ottla/spark/"))
        for node in nodes_of(source.tree)
        if isinstance(node, ast.Name | ast.Attribute)
        and dotted(node).rpartition(".")[2] in ("reader_of", "avro_reader", "avro_writer")
    ]
    assert not wrong, wrong
