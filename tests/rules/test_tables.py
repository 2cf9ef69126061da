"""Tables that have to agree: APIs, routes, handlers, error replies, configurations."""

from __future__ import annotations

import ast

from ottla.broker.api_row import Answered
from ottla.broker.authorization import InHandler
from ottla.broker.routes import ROUTES
from ottla.controller.routes import ROUTES as CONTROLLER_ROUTES
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.schema import fields
from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.config.resource_configs import GROUP_CONFIGS, TOPIC_CONFIGS, TOPIC_SYNONYMS
from ottla.server.network.error_reply import AT_TOP, MIRRORED, SPECIAL
from tests.rules.generated import MACHINES
from tests.rules.sources import nodes_of, sources

#: The APIs in the rows of each table of routes.
ROUTED = {
    "broker/routes.py": [row.api_key for row in ROUTES],
    "controller/routes.py": [key for key, _ in CONTROLLER_ROUTES],
}
#: The ways in which a handler asks the authorizer.
ASKS = frozenset({"allows", "require", "split", "operations_on_cluster", "describe_modern_groups", "member_of"})


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
    routed = set()
    for row in ROUTES:
        if isinstance(row, Answered) and row.handler.__module__.startswith("ottla.broker.api."):
            module, name = row.handler.__module__, row.handler.__name__
            routed.add(module)
            name = module.rpartition(".")[2] if name == "handle" else name
            assert name == row.api_key.name.lower(), (
                f"{module}.{name} is not named as the API of its row, {row.api_key}"
            )
    for source in sources():
        folder, _, name = source.module.rpartition(".")
        if folder == "ottla.broker.api" and not name.startswith("_"):
            assert source.module in routed, f"{source.path} has no handler of a row in broker/routes.py"


def test_no_api_is_routed_twice_by_one_table() -> None:
    for path, keys in ROUTED.items():
        assert len(keys) > 5
        assert len(keys) == len(set(keys)), (path, sorted(key.name for key in keys if keys.count(key) > 1))


def test_a_broker_serves_only_what_kafka_serves_on_a_brokers_listener() -> None:
    for key in ROUTED["broker/routes.py"]:
        api = APIS.get(key)
        assert api is not None, f"{key.name} has a route, but no row in the table of protocol/api.py"
        assert "broker" in api.listeners, f"{key.name}: Kafka does not serve this API on a broker's listener"


def test_only_the_apis_that_kafka_leaves_open_need_no_permission() -> None:
    """A row without `authorization` is invalid: the type checker rejects it, and so does Python at import."""
    unguarded = {row.api_key for row in ROUTES if isinstance(row, Answered) and not row.authorization}
    assert unguarded == {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


def test_a_handler_that_is_to_ask_the_authorizer_itself_does() -> None:
    trees = {source.module: source.tree for source in sources()}
    for row in ROUTES:
        if isinstance(row, Answered) and any(isinstance(rule, InHandler) for rule in row.authorization):
            called = {
                node.attr if isinstance(node, ast.Attribute) else node.id
                for node in nodes_of(trees[row.handler.__module__])
                if isinstance(node, ast.Attribute | ast.Name)
            }
            assert called & ASKS, f"the row of {row.api_key.name} is IN_HANDLER, and its handler asks nothing"


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
