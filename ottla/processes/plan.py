"""The configurations of a machine's processes, derived from the operator's configuration by a pure function.

| | controller | broker k of 1..N |
| --- | --- | --- |
| process.roles | controller | broker |
| node.id | I, as configured: 1 to 999 | I * 1000 + k |
| listeners, advertised.listeners | the controllers', unchanged | the others, every port + 10 * (k - 1) |
| log.dirs, cordoned.log.dirs | M/controller | D/broker-k of every directory D |
| metadata.log.dir | M/controller | M/broker-k if it is configured |
| broker.rack | - | as configured, else the name of the host |
| controller.quorum.voters | as configured, else I at its own listener | the same |

M is metadata.log.dir, or the first directory of log.dirs. All other properties are the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.server.address import PORT_MAX, Address
from ottla.server.admin import read_address
from ottla.server.config.key import ConfigError
from ottla.server.config.node_config import NodeConfig

#: The brokers of the controller I have the ids from I * 1000 + 1 on. With 1000 of them the last id would belong to the next
#: machine.
COUNT_MAX = 999


def process_count(text: str) -> int:
    """Return the number of brokers of `--processes` and OTTLA_PROCESSES.

    Raises ValueError, whose text says what is expected, for anything but a number of brokers.
    """
    if text.strip().isascii() and text.strip().isdigit() and 1 <= int(text) <= COUNT_MAX:
        return int(text)
    raise ValueError(f"{text!r} is not a number of brokers between 1 and {COUNT_MAX}")


#: Ids of brokers. They are unique in the cluster if those of the controllers are, and different from these.
IDS_PER_MACHINE = 1000
#: Listeners of one node usually have neighbouring ports (9092, 9093, 9094), so the brokers' are further apart.
PORT_STEP = 10
ADMIN_LISTENER = "ottla.admin.listener"
CONTROLLER_FOLDER = "controller"
BROKER_FOLDER = "broker-"
#: Properties that only one process can have, because no value for each of them can be derived; with the remedy.
REFUSED = {
    "ottla.metrics.port": f"set {ADMIN_LISTENER}: its /metrics has the metrics of all processes",
}


class PlannedProcess(NamedTuple):
    """One node of the machine."""

    node_id: int
    #: `controller`, `broker-1`, ...: also the name of its folder in each log directory.
    name: str
    properties: dict[str, str]


def plan(
    properties: Mapping[str, str], count: int, host: str, where: Mapping[str, str] | None = None
) -> list[PlannedProcess]:
    """Return the controller and its `count` brokers. `host` is the machine's name, and `where` has the origin of each property.

    Raises:
        ConfigError: a property is invalid, or there is no way to derive the processes' own values from it.
    """
    origins = where or {}
    config = NodeConfig(properties, origins)
    _check(config, properties, count, origins)
    common = {name: text for name, text in properties.items() if name not in (ADMIN_LISTENER, "broker.id", "log.dir")}
    if not config.voters:
        common["controller.quorum.voters"] = _own_voter(config, origins)
    nodes = [_controller(config, common)]
    nodes += [_broker(config, common, k, host) for k in range(1, count + 1)]
    _check_ports(config, nodes, origins)
    for node in nodes:
        NodeConfig(node.properties, origins)
    return nodes


def _controller(config: NodeConfig, common: Mapping[str, str]) -> PlannedProcess:
    node_id: int = config.node_id
    folder = f"{config.metadata_log_directory}/{CONTROLLER_FOLDER}"
    own = dict(common)
    own |= _listeners(config, shift=0, of_controller=True)
    own |= {"process.roles": "controller", "node.id": str(node_id), "log.dirs": folder}
    for name in ("metadata.log.dir", "cordoned.log.dirs"):
        own.pop(name, None)
    if "early.start.listeners" in own:
        own["early.start.listeners"] = ",".join(sorted(config.early_start_listeners & set(config.controller_names)))
    return PlannedProcess(node_id, CONTROLLER_FOLDER, _without_empty(own))


def _broker(config: NodeConfig, common: Mapping[str, str], k: int, host: str) -> PlannedProcess:
    node_id, name = config.node_id * IDS_PER_MACHINE + k, f"{BROKER_FOLDER}{k}"
    own = dict(common)
    own |= _listeners(config, shift=PORT_STEP * (k - 1), of_controller=False)
    own |= {"process.roles": "broker", "node.id": str(node_id)}
    own["log.dirs"] = ",".join(f"{directory}/{name}" for directory in config.log_directories)
    own["broker.rack"] = config["broker.rack"] or host
    own.pop("controller.quorum.auto.join.enable", None)
    if config["metadata.log.dir"]:
        own["metadata.log.dir"] = f"{config.metadata_log_directory}/{name}"
    if cordoned := config["cordoned.log.dirs"]:
        own["cordoned.log.dirs"] = ",".join(each if each == "*" else f"{each}/{name}" for each in cordoned)
    return PlannedProcess(node_id, name, _without_empty(own))


def _listeners(config: NodeConfig, *, shift: int, of_controller: bool) -> dict[str, str]:
    controllers = set(config.controller_names)

    def own(entries: Iterable[str]) -> str:
        kept = [entry for entry in entries if (_name(entry) in controllers) is of_controller]
        return ",".join(_shifted(entry, shift) for entry in kept)

    return {
        "listeners": own(config["listeners"]),
        "advertised.listeners": own(config["advertised.listeners"] or ()),
    }


def _name(entry: str) -> str:
    return entry.partition("://")[0].upper()


def _shifted(entry: str, shift: int) -> str:
    """Raise the port of an entry. Port 0 stays: it means any free port, which is another one for each process."""
    address, _, port = entry.rpartition(":")
    return f"{address}:{int(port) + shift if int(port) > 0 else port}"


def _without_empty(properties: dict[str, str]) -> dict[str, str]:
    """Remove an empty list of advertised listeners: none of this process's listeners has an entry."""
    if not properties["advertised.listeners"]:
        del properties["advertised.listeners"]
    return properties


def _own_voter(config: NodeConfig, where: Mapping[str, str]) -> str:
    """Return the only voter, for a cluster on one machine: its brokers reach the controller through the address on which it listens."""
    (endpoint,) = (each for each in config.controller_endpoints if each.name == config.controller_names[0])
    if endpoint.port == 0:
        raise _refusal(
            config, "listeners", where, f"brokers cannot know the free port that {endpoint.name} gets", "give it a port"
        )
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(endpoint.host, endpoint.host)
    return f"{config.node_id}@{Address(host, endpoint.port)}"


# -- What cannot be derived ------------------------------------------------------------------------------------------------


def _refusal(config: NodeConfig, name: str, where: Mapping[str, str], why: str, remedy: str) -> ConfigError:
    value = config.static.get(name, config.own.get(name))
    origin = f" ({where[name]})" if name in where else ""
    return ConfigError(name, value, why, remedy, message=f"{name}={value}{origin}: {why}")


def _check(config: NodeConfig, properties: Mapping[str, str], count: int, where: Mapping[str, str]) -> None:
    if not (config.is_broker and config.is_controller):
        why = "a machine of several processes has a controller and brokers"
        raise _refusal(config, "process.roles", where, why, "process.roles=broker,controller, or a single process")
    if not 1 <= config.node_id < IDS_PER_MACHINE:
        why = f"the ids of its brokers are node.id * {IDS_PER_MACHINE} + 1 to {count}, and must not be another controller's"
        raise _refusal(config, "node.id", where, why, f"a node.id from 1 to {IDS_PER_MACHINE - 1}")
    if config.bootstrap_servers and not config.voters:
        why = "the directories of a dynamic quorum are formatted one by one, and these are derived"
        remedy = "controller.quorum.voters=ID@HOST:PORT,... with the controllers of all machines"
        raise _refusal(config, "controller.quorum.bootstrap.servers", where, why, remedy)
    for name, remedy in REFUSED.items():
        if name in properties:
            raise _refusal(config, name, where, "the processes cannot share it", remedy)


def _check_ports(config: NodeConfig, nodes: Sequence[PlannedProcess], where: Mapping[str, str]) -> None:
    """Check that each port belongs to one process.

    An IPv4 and an IPv6 listener of the same process may share a port, as in Kafka.
    """
    taken: dict[int, str] = {}
    if text := config[ADMIN_LISTENER]:
        taken[_admin_port(text)] = ADMIN_LISTENER
    for node in nodes:
        own: dict[int, str] = {}
        for entry in node.properties["listeners"].split(","):
            port, label = int(entry.rpartition(":")[2]), f"{_name(entry)} of {node.name}"
            if port > PORT_MAX:
                why = f"{label} would have port {port}, above {PORT_MAX}"
                raise _refusal(config, "listeners", where, why, "lower ports, or fewer processes")
            if port in taken:
                why = f"{taken[port]} and {label} would both have port {port}"
                remedy = (
                    f"ports of a listener are {PORT_STEP} apart from broker to broker: choose others for one of them"
                )
                raise _refusal(config, "listeners", where, why, remedy)
            if port > 0:
                own[port] = label
        taken |= own


def _admin_port(text: str) -> int:
    try:
        return read_address(text)[1]
    except ValueError as error:
        message = f"Invalid value {text} for configuration {ADMIN_LISTENER}: {error}"
        raise ConfigError(ADMIN_LISTENER, text, str(error), f"{ADMIN_LISTENER}=0.0.0.0:9644", message=message) from None
