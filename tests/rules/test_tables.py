"""Tables that have to agree: APIs, routes, handlers, error replies, configurations."""

from __future__ import annotations

import ast

from ottla.broker.authorization.rules import RULES
from ottla.broker.routes import FORWARD, ROUTES
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.schema import fields
from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.config.group import GROUP_CONFIGS
from ottla.server.config.topic import TOPIC_CONFIGS, TOPIC_SYNONYMS
from ottla.server.network.error_reply import AT_TOP, MIRRORED, SPECIAL
from tests.rules.generated import MACHINES
from tests.rules.sources import dotted, sources

#: The tables of routes: file, and the name of the tuple whose rows begin with an ApiKey.
ROUTE_TABLES = (("broker/routes.py", "ROUTES"), ("controller/routes.py", "ROUTES"))
#: What broker/handlers has besides one file per API.
NOT_ONE_API = frozenset({"authorized_operations"})


def routed(path: str, table: str) -> list[str]:
    """The APIs in the rows of a table."""
    source = next(source for source in sources() if source.path == path)
    for node in source.tree.body:
        target = (
            node.target
            if isinstance(node, ast.AnnAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        if target is not None and dotted(target) == table and isinstance(node, ast.Assign | ast.AnnAssign):
            assert isinstance(node.value, ast.Tuple | ast.List), f"{path}: {table} has to be written out"
            rows = [row for row in node.value.elts if isinstance(row, ast.Tuple)]
            return [dotted(row.elts[0]).removeprefix("ApiKey.") for row in rows]
    raise AssertionError(f"{path} has no table {table}")


def test_every_api_has_somewhere_to_say_an_error() -> None:
    for api in APIS.values():
        top = {field.name for field in fields(api.response)}
        assert "error_code" in top or api.key in MIRRORED, (
            f"{api.name}Response has no error_code at the top: add a row to MIRRORED in server/network/error_reply.py"
        )


def test_error_replies_name_fields_that_exist() -> None:
    for key, mirrors in MIRRORED.items():
        for mirror in mirrors:
            assert mirror.each.source in {field.name for field in fields(APIS[key].request)}, key
            assert mirror.each.target in {field.name for field in fields(APIS[key].response)}, key
        assert mirrors or key in SPECIAL, key
    for key, values in AT_TOP.items():
        assert set(values) <= {field.name for field in fields(APIS[key].response)}, key


def test_handlers_of_a_broker_are_named_as_their_apis_and_are_routed() -> None:
    routed_names = {name.lower() for name in routed(*ROUTE_TABLES[0])}
    for source in sources():
        folder, _, name = source.module.rpartition(".")
        if folder == "ottla.broker.handlers" and name not in NOT_ONE_API and not name.startswith("_"):
            assert name in routed_names, f"{source.path} is named after no API that has a row in broker/routes.py"


def test_no_api_is_routed_twice_by_one_table() -> None:
    for path, table in ROUTE_TABLES:
        rows = routed(path, table)
        assert len(rows) > 5
        assert len(rows) == len(set(rows)), (path, sorted(row for row in rows if rows.count(row) > 1))
        assert set(rows) <= set(ApiKey.__members__)


def test_a_broker_serves_only_what_kafka_serves_on_a_brokers_listener() -> None:
    for name in routed(*ROUTE_TABLES[0]):
        api = APIS.get(ApiKey[name])
        assert api is not None, f"{name} has a route, but no row in the table of protocol/api.py"
        assert "broker" in api.listeners, f"{name}: Kafka does not serve this API on a broker's listener"


def test_each_api_that_a_broker_answers_itself_has_a_row_of_authorization() -> None:
    answered = {key for key, handler in ROUTES if handler != FORWARD}
    missing = sorted(key.name for key in answered - set(RULES))
    assert not missing, (
        f"a broker with these routes does not start: add rows to broker/authorization/rules.py: {missing}"
    )
    unused = sorted(key.name for key in set(RULES) - answered)
    assert not unused, f"the controller authorizes what is forwarded to it, so these rows have no effect: {unused}"


def test_configurations_refer_to_rows_that_exist() -> None:
    for topic, names in TOPIC_SYNONYMS.items():
        assert topic in TOPIC_CONFIGS
        assert all(name in BROKER_CONFIGS for name, _ in names)
    assert not set(GROUP_CONFIGS) & set(TOPIC_CONFIGS)


def test_every_state_that_can_be_entered_has_a_row_and_can_be_reached() -> None:
    for title, _, _, table, start in MACHINES:
        entered = {state for row in table.values() for state in row}
        assert entered <= set(table), title
        assert set(table) <= entered | ({start} if start is not None else set()), title
        assert all(why for row in table.values() for why in row.values()), title
