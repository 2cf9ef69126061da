"""The configuration of a node: it is parsed and checked, and can be read by attribute and by name.

    config["log.retention.ms"]      by Kafka's name            config.node_id      by name with underscores

Unknown names are kept (extensions may read them) and listed in one log line; they do not prevent the start.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from os.path import normpath
from typing import Any, TypeAlias

from ottla.protocol.releases import RELEASES, Advertised, release_name
from ottla.server.address import Address, parse_address
from ottla.server.config import remote_storage
from ottla.server.config.broker import (
    AUTHORIZER_CONFIGS,
    BROKER_CONFIGS,
    LISTENER_PREFIX,
    NOT_NEEDED,
    check_effects,
    key_of,
    without_effect,
)
from ottla.server.config.dynamic import Levels, broker_values, release_defaults
from ottla.server.config.key import REQUIRED, ConfigError, Values
from ottla.server.config.listeners import (
    Endpoint,
    VoterAddress,
    protocol_map,
    read_endpoints,
    read_voters,
)
from ottla.server.config.properties_file import with_both_ids
from ottla.server.config.settings import OWN_CONFIGS, own_values
from ottla.server.config.tables.topic_tables import STORE_OPTION

log = logging.getLogger(__name__)

BROKER, CONTROLLER = "broker", "controller"
#: A name that is at least this similar to a known one counts as misspelt. Names of plugins and images are less similar.
SIMILARITY_MIN = 0.85


class NodeConfig:
    """The configuration of a node. Dynamic configurations change it while the node runs."""

    def __init__(self, static: Mapping[str, str], where: Mapping[str, str] | None = None) -> None:
        """Take in `where` the place where each property is set, for error messages."""
        self.own = own_values(static)
        self.static = with_both_ids({name: text for name, text in static.items() if name not in OWN_CONFIGS})
        #: The options of the stores and catalogs of tables. Some of them are passwords.
        self.store_options = {
            name.removeprefix(STORE_OPTION): text for name, text in self.static.items() if name.startswith(STORE_OPTION)
        }
        self.unknown = sorted(
            name
            for name in self.static
            if key_of(name) is None
            and name not in AUTHORIZER_CONFIGS
            and not name.startswith((STORE_OPTION, *remote_storage.PREFIXES))
        )
        #: The texts of all levels for DescribeConfigs, and all configurations by name.
        release = RELEASES[release_name(self.own["ottla.advertised.release"])]
        self.levels = Levels({}, {}, self.static, release_defaults(release))
        self.values = broker_values(self.levels)
        self._watchers: list[Callable[[NodeConfig, frozenset[str]], None]] = []
        check_required(self.values)
        self.advertised = Advertised(
            release,
            unstable_apis=self.values["unstable.api.versions.enable"],
            unstable_features=self.values["unstable.feature.versions.enable"],
        )
        check_effects(self.static, where or {})
        remote_storage.check_system(self.values, self.own, self.static)
        self.endpoints: tuple[Endpoint, ...] = read_endpoints(self.values)
        self.voters: tuple[VoterAddress, ...] = read_voters(self["controller.quorum.voters"])
        self.bootstrap_servers: tuple[Address, ...] = tuple(
            map(parse_address, self["controller.quorum.bootstrap.servers"])
        )
        check_roles(self)

    def __getitem__(self, name: str) -> Any:
        """Return the value of a property, Kafka's or Ottla's own.

        Raises:
            KeyError: there is no such property.
        """
        return self.own[name] if name in self.own else self.values[name]

    @property
    def set_names(self) -> frozenset[str]:
        """Return the names that are set."""
        return self.levels.names

    def of_listener(self, listener: str, mechanism: str = "") -> Values:
        """Return one listener's own configurations (`listener.name.<listener>.<name>`), parsed, by plain name.

        With a mechanism, return those of one SASL mechanism (`listener.name.<listener>.<mechanism>.<name>`).
        """
        prefix, found = f"listener.name.{listener.lower()}.", {}
        if mechanism:
            prefix += f"{mechanism.lower()}."
        for level in (self.levels.static, self.levels.default, self.levels.broker):
            for name, text in level.items():
                key = key_of(name.removeprefix(prefix)) if name.startswith(prefix) else None
                if key is not None:
                    found[key.name] = key.parse(text)
        return found

    @property
    def node_id(self) -> int:
        value: int = self.values["node.id"]
        return value

    @property
    def is_broker(self) -> bool:
        return BROKER in self.values["process.roles"]

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self.values["process.roles"]

    @property
    def log_directories(self) -> list[str]:
        """The log directories, each once (`/a` and `/a/` are the same directory)."""
        return [normpath(path) for path in self.values["log.dirs"] or self.values["log.dir"]]

    @property
    def cordoned_directories(self) -> list[str]:
        """The values of cordoned.log.dirs: directories, and "*" for all of them."""
        return [normpath(path) for path in self.values["cordoned.log.dirs"] or ()]

    def is_cordoned(self, directory: str) -> bool:
        """Return True if this log directory is cordoned: it gets no new replicas."""
        return directory in self.cordoned_directories or "*" in self.cordoned_directories

    @property
    def metadata_log_directory(self) -> str:
        path = self.values["metadata.log.dir"]
        return normpath(path) if path else self.log_directories[0]

    @property
    def controller_names(self) -> list[str]:
        return [name.upper() for name in self.values["controller.listener.names"]]

    @property
    def controller_endpoints(self) -> tuple[Endpoint, ...]:
        """This node's listeners for controllers."""
        return tuple(endpoint for endpoint in self.endpoints if endpoint.name in self.controller_names)

    @property
    def early_start_listeners(self) -> frozenset[str]:
        """The listeners that open before the authorizer has its entries (KIP-801).

        By default they are those of the controllers.
        """
        names = self.values["early.start.listeners"]
        return frozenset(self.controller_names if names is None else (name.upper() for name in names))

    @property
    def broker_endpoints(self) -> tuple[Endpoint, ...]:
        """This node's listeners for clients and brokers."""
        return tuple(endpoint for endpoint in self.endpoints if endpoint.name not in self.controller_names)

    def security_protocol(self, listener: str) -> str:
        """Return the protocol of a listener. The listener may exist only on other nodes."""
        return protocol_map(self["listener.security.protocol.map"], self["controller.listener.names"])[listener]

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers use among themselves."""
        name: str = self.values["inter.broker.listener.name"] or self.values["security.inter.broker.protocol"]
        return name.upper()

    def with_dynamic(self, broker: Mapping[str, str]) -> NodeConfig:
        """Return a copy with other dynamic configurations of this broker, without watchers."""
        other = copy.copy(self)
        other.levels, other._watchers = self.levels._replace(broker=dict(broker)), []
        other.values = broker_values(other.levels, [])
        return other

    def set_dynamic(self, broker: Mapping[str, str], default: Mapping[str, str]) -> frozenset[str]:
        """Apply the dynamic configurations of this broker and of all brokers; return the names that changed."""
        refused: list[ConfigError] = []
        levels = self.levels._replace(broker=dict(broker), default=dict(default))
        values = broker_values(levels, refused)
        for error in refused:
            log.error("Ignoring a dynamic configuration: %s", error)
        changed = frozenset(name for name, value in values.items() if value != self.values[name])
        before, after = ({**each.static, **each.default, **each.broker} for each in (self.levels, levels))
        changed |= {
            name
            for name in before.keys() | after.keys()
            if LISTENER_PREFIX.match(name) and before.get(name) != after.get(name)
        }
        self.levels, self.values = levels, values
        if changed:
            log.info("Dynamic configuration changed: %s", ", ".join(sorted(changed)))
            for watcher in self._watchers:
                watcher(self, changed)
        return changed

    def watch(self, watcher: Callable[[NodeConfig, frozenset[str]], None]) -> None:
        """Register a callback for changes. It gets the changed names."""
        self._watchers.append(watcher)


def _with_suggestion(name: str) -> str:
    """Return an unknown name together with the most similar known one, if one is similar."""
    from difflib import get_close_matches  # imported late: a start without a mistake does not need it

    near = get_close_matches(name, BROKER_CONFIGS, n=1, cutoff=SIMILARITY_MIN)
    return f"{name} (did you mean {near[0]}?)" if near else name


def log_ignored(config: NodeConfig) -> None:
    """Log once which set properties have no effect."""
    if config.unknown:
        names = ", ".join(map(_with_suggestion, config.unknown))
        log.warning("These configurations are not known and are ignored: %s", names)
    idle = without_effect(config.static)
    if bounds := [name for name in idle if name in NOT_NEEDED]:
        log.info("These configurations are not needed in Ottla: %s", ", ".join(bounds))
    if in_vain := [name for name in idle if name not in NOT_NEEDED]:
        log.warning("These configurations have no effect in Ottla: %s", ", ".join(in_vain))


def check_required(values: Values) -> None:
    for name, value in values.items():
        if value is REQUIRED:
            message = f'Missing required configuration "{name}" which has no default value.'
            raise ConfigError(name, None, "", EXAMPLES.get(name, ""), message=message)
        key = key_of(name)
        if key is not None and key.validator is not None and value is not None:
            key.validator(name, value)


EXAMPLES = {
    "process.roles": "process.roles=broker,controller for a node that is a cluster of its own",
    "node.id": "node.id=1",
    "controller.listener.names": "controller.listener.names=CONTROLLER, with CONTROLLER://:9093 among the listeners",
}


def check_roles(config: NodeConfig) -> None:
    """Check the requirements of a node's roles on its listeners, directories and the quorum."""
    for name, message, what_to_try in chain(
        _unmet_by_roles(config), _unmet_by_values(config), _unmet_by_quorum(config)
    ):
        raise ConfigError(name, None, message, what_to_try, message=message)


#: The requirements that are not met, in order: the name, Kafka's message, and the remedy.
Unmet: TypeAlias = Iterator[tuple[str, str, str]]


def _unmet_by_roles(config: NodeConfig) -> Unmet:
    own = {endpoint.name for endpoint in config.endpoints}
    controllers = set(config.controller_names)
    name = "controller.listener.names"
    if config.is_controller and not controllers <= own:
        missing = ", ".join(sorted(controllers - own))
        yield (
            name,
            "controller.listener.names must contain at least one value appearing in the 'listeners' configuration when running "
            "the KRaft controller role",
            f"add {missing}://:9093 to listeners",
        )
    if not config.is_controller and controllers & own:
        yield (
            name,
            "controller.listener.names must not contain a value appearing in the 'listeners' configuration when running KRaft "
            "with just the broker role",
            "",
        )
    if not config.is_broker and own - controllers:
        yield (
            "listeners",
            "The listeners config must only contain KRaft controller listeners from controller.listener.names when "
            "process.roles=controller",
            "",
        )


def _unmet_by_values(config: NodeConfig) -> Unmet:
    directories = config.log_directories
    if len(set(directories)) < len(directories):
        yield "log.dirs", f"log.dirs names a directory twice: {', '.join(directories)}.", "name each directory once"
    known = {endpoint.name for endpoint in config.endpoints} | set(config.controller_names)
    if unknown := sorted(config.early_start_listeners - known):
        yield (
            "early.start.listeners",
            f"early.start.listeners contains listener {unknown[0]}, but this is not contained in listeners or "
            "controller.listener.names",
            f"the listeners are {', '.join(sorted(known))}",
        )
    if 0 < config["queued.max.request.bytes"] < config["socket.request.max.bytes"]:
        yield (
            "queued.max.request.bytes",
            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
            f"socket.request.max.bytes is {config['socket.request.max.bytes']}",
        )
    if not config.is_broker:
        return
    names = [endpoint.name for endpoint in config.broker_endpoints]
    if not names:
        yield (
            "listeners",
            "There must be at least one broker advertised listener.",
            "add PLAINTEXT://:9092 to listeners",
        )
    if config.inter_broker_listener not in names:
        yield (
            "inter.broker.listener.name",
            f"inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options based on "
            f"currently configured listeners are {','.join(names)}",
            f"inter.broker.listener.name={names[0]}",
        )
    # Otherwise a directory with a misspelt name would continue to get replicas.
    if misspelt := [path for path in config.cordoned_directories if path != "*" and path not in directories]:
        yield (
            "cordoned.log.dirs",
            f"All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries: {', '.join(misspelt)}",
            f"log.dirs is {','.join(directories)}",
        )


def _unmet_by_quorum(config: NodeConfig) -> Unmet:
    if config["controller.quorum.auto.join.enable"] and not config.is_controller:
        yield (
            "controller.quorum.auto.join.enable",
            "controller.quorum.auto.join.enable is only supported when process.roles contains the 'controller' role.",
            "leave it out: a broker never votes",
        )
    if not config.voters and not config.bootstrap_servers and not config.is_controller:
        yield (
            "controller.quorum.bootstrap.servers",
            "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap controllers or "
            "controller.quorum.voters must contain a parseable set of controllers.",
            "",
        )
    ids = {voter.id for voter in config.voters}
    role = "contains the 'controller'" if config.is_controller else "contains just the 'broker'"
    if ids and config.is_controller != (config.node_id in ids):
        yield (
            "controller.quorum.voters",
            f"If process.roles {role} role, the node id {config.node_id} must {'' if config.is_controller else 'not '}be included in the "
            f"set of voters controller.quorum.voters=Set({','.join(map(str, sorted(ids)))})",
            "",
        )
