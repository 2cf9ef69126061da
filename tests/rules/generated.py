"""Pages of docs/ that are generated from tables in the code: docs/dev/STATES.md, docs/APIS.md, docs/METRICS.md and
docs/DOCTOR.md.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import Any

from ottla.broker.api_row import Answered
from ottla.broker.cluster import broker_state
from ottla.broker.coordinator import context as coordinator
from ottla.broker.groups.classic import classic_member as classic
from ottla.broker.groups.modern import modern_group
from ottla.broker.routes import ROUTES as BROKER_ROUTES
from ottla.broker.share import in_flight
from ottla.broker.transactions import transaction as transactions
from ottla.cli.doctor.findings import KINDS, SEVERITIES
from ottla.controller.handlers import envelope
from ottla.controller.raft import quorum
from ottla.controller.raft import routes as raft_routes
from ottla.controller.routes import ROUTES as CONTROLLER_ROUTES
from ottla.protocol.api import APIS, Api, ApiKey
from ottla.server.handlers.api_versions import ApiVersionsHandler
from ottla.server.handlers.sasl import sasl_authenticate, sasl_handshake
from tests.rules.metrics_page import metrics_page
from tests.rules.sources import ROOT, short_path

_NOTICE = "<!-- Written by tests/rules/test_docs.py from tables in the code: with UPDATE=1 it writes it again. -->"

#: A line of a docstring's list: a code or several, two spaces, and when it is sent.
_ERRORS = re.compile(r"^    ([A-Z][A-Z_0-9]+(?:, [A-Z][A-Z_0-9]+)*)  +(\S.*)$", re.MULTILINE)
#: In place of a handler.
FORWARD = "forward"

Table = Mapping[Any, Mapping[Any, str]]

#: The title, what the states belong to, the module and its table, and the first state.
MACHINES: tuple[tuple[str, str, Any, Table, Any], ...] = (
    (
        "Raft",
        "The role of a replica of the metadata log. Every change is checked, also that no epoch goes back and no vote is lost.",
        quorum,
        quorum.TRANSITIONS,
        None,
    ),
    (
        "Broker life cycle",
        "A broker as the controller sees it, by registration and heartbeats.",
        broker_state,
        broker_state.TRANSITIONS,
        broker_state.BrokerState.NOT_RUNNING,
    ),
    (
        "Coordinator runtime",
        "A partition of an internal topic at the coordinator that leads it: groups and transactions alike.",
        coordinator,
        coordinator.TRANSITIONS,
        coordinator.CoordinatorState.LOADING,
    ),
    (
        "Classic groups",
        "A consumer group of the classic protocol. A group that is loaded from the log begins as Empty or Stable.",
        classic,
        classic.TRANSITIONS,
        classic.EMPTY,
    ),
    (
        "Members of consumer and streams groups",
        "How far a member has come towards its target (KIP-848, KIP-1071): what it has to give up, and what it waits for. The state is"
        " in the log; a step is checked where it is decided.",
        modern_group,
        modern_group.TRANSITIONS,
        modern_group.STABLE,
    ),
    (
        "Transactions",
        "A transactional id. A prepared outcome has one way out, so it stands (invariant 35).",
        transactions,
        transactions.TRANSITIONS,
        transactions.TransactionState.EMPTY,
    ),
    (
        "Records of share partitions",
        "A record in flight at the leader of a share partition (KIP-932, [how](SHARE_GROUPS.md)). Those that others may see are written first.",
        in_flight,
        in_flight.TRANSITIONS,
        in_flight.RecordState.AVAILABLE,
    ),
)


def path_of(code: Any) -> str:
    """The file of a module, function or class, from the root."""
    while isinstance(code, partial):
        code = code.func
    file = inspect.getsourcefile(inspect.unwrap(code))
    assert file is not None
    return short_path(str((ROOT / file).resolve().relative_to(ROOT)))


def label(state: Any) -> str:
    """Return the label of a state: `PREPARE_COMMIT` and `Unattached` become PrepareCommit and Unattached."""
    name: str = state.name if isinstance(state, Enum) else state.__name__
    return "".join(word.capitalize() for word in name.split("_")) if name.isupper() else name


def states_page() -> str:
    lines = ["# States", _NOTICE, "", "Each table is asserted at every change of state.", ""]
    for title, what, module, table, start in MACHINES:
        lines += [f"## {title}", f"{what} (`{path_of(module)}`)", "", "```mermaid", "stateDiagram-v2"]
        if start is not None:
            lines.append(f"    [*] --> {label(start)}")
        for old, following in table.items():
            lines += [f"    {label(old)} --> {label(new)}" for new in following]
        lines += ["```", "", "| from | to | when |", "| --- | --- | --- |"]
        for old, following in table.items():
            lines += [f"| {label(old)} | {label(new)} | {why} |" for new, why in following.items()]
        lines.append("")
    return "\n".join(lines)


def versions(api: Api) -> str:
    text = f"{api.min_version}-{api.max_version}" if api.max_version > api.min_version else str(api.max_version)
    if api.advertised_min != api.min_version:
        text += f" (ApiVersions says {api.advertised_min}-{api.max_version})"
    if api.latest_unstable:
        text += f" ({api.max_version} is unstable)"
    return text


def apis_page() -> str:
    everywhere: dict[ApiKey, Any] = {
        ApiKey.API_VERSIONS: ApiVersionsHandler,
        ApiKey.SASL_HANDSHAKE: sasl_handshake,
        ApiKey.SASL_AUTHENTICATE: sasl_authenticate,
    }
    broker: dict[ApiKey, Any] = {
        **{row.api_key: row.handler if isinstance(row, Answered) else FORWARD for row in BROKER_ROUTES},
        **everywhere,
    }
    raft = dict.fromkeys([*raft_routes.READERS, ApiKey.DESCRIBE_QUORUM], raft_routes)
    controller: dict[ApiKey, Any] = {**dict(CONTROLLER_ROUTES), **raft, ApiKey.ENVELOPE: envelope, **everywhere}
    lines = [
        "# APIs",
        _NOTICE,
        "",
        "Every API of Apache Kafka, with the versions that are read here, and the file that answers it on each kind of listener. *forward*: passed on to the"
        " active controller. A dash: not served there; an API that is served nowhere is not advertised, and is answered UNSUPPORTED_VERSION.",
        "",
        "| key | API | versions | broker's listener | controller's listener |",
        "| --- | --- | --- | --- | --- |",
    ]
    for key, api in sorted(APIS.items()):
        row = [str(int(key)), api.name, versions(api), where(broker.get(key)), where(controller.get(key))]
        lines.append(f"| {' | '.join(row)} |")
    lines += [
        "",
        "## Errors",
        "",
        "The errors that the handlers of a broker's listener make themselves, from their docstrings. Coordinators, replicas and the authorizer have more.",
        "",
        "| API | error | when |",
        "| --- | --- | --- |",
    ]
    for key in sorted(broker):
        for codes, meaning in errors_of_handler(broker[key]):
            lines.append(f"| {APIS[key].name} | {codes} | {meaning} |")
    return "\n".join([*lines, ""])


def doctor_page() -> str:
    lines = [
        "# Findings of ottla doctor",
        _NOTICE,
        "",
        "`ottla doctor -b HOST:PORT [--config FILE] [--topic NAME]` looks at each step from where it runs to the cluster, and at the cluster: names,"
        " connections, the protocol, TLS, the login, the address that each broker advertises, the permissions for a topic, a record that is"
        " written and read back (`--read-only`: none), clocks, replicas, disks, the quorum, settings that lose records, client libraries,"
        " and the Python of the nodes. The exit code is that of the first error in this order; warnings and advice leave it 0. `-o json` has the same fields.",
        "",
        "![ottla doctor while one of three nodes is down](pictures/doctor.svg)",
    ]
    for severity in SEVERITIES:
        lines += [
            "",
            f"## {severity.capitalize()}",
            "",
            "| finding | means | remedy | exit code |",
            "| --- | --- | --- | --- |",
        ]
        lines += [
            f"| {name} | {kind.meaning} | {kind.remedy} | {kind.exit_code} |"
            for name, kind in KINDS.items()
            if kind.severity == severity
        ]
    return "\n".join([*lines, ""])


def errors_of(docstring: str | None) -> list[tuple[str, str]]:
    """Returns the errors that a handler's docstring lists, with their meaning. A line may name several codes."""
    _, _, listed = (docstring or "").partition("\nErrors:\n")
    return _ERRORS.findall(listed)


def errors_of_handler(handler: Any) -> list[tuple[str, str]]:
    """Return the errors that the handler's own docstring lists, if it has the name of its API; otherwise its module has no
    other handler, and lists them.
    """
    if getattr(handler, "__name__", "").upper() in ApiKey.__members__:
        return errors_of(inspect.getdoc(handler))
    return errors_of(sys.modules[getattr(handler, "__module__", __name__)].__doc__)


def where(handler: Any) -> str:
    if handler is None:
        return "-"
    return f"*{FORWARD}*" if handler == FORWARD else f"`{path_of(handler)}`"


PAGES: dict[str, Callable[[], str]] = {
    "docs/dev/STATES.md": states_page,
    "docs/APIS.md": apis_page,
    "docs/METRICS.md": metrics_page,
    "docs/DOCTOR.md": doctor_page,
}
