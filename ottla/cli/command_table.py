"""The commands of `ottla`: the module of each, which has `main(arguments)`, and what `ottla --help` says about it."""

from __future__ import annotations


class Command:
    """A command's module and summary. It is no named tuple: the import of `typing` takes half the time of `ottla --version`."""

    __slots__ = ("module", "summary")

    def __init__(self, module: str, summary: str) -> None:
        self.module = module
        self.summary = summary


COMMANDS = {
    "start": Command("ottla.processes.start", "run one node from a server.properties file"),
    "adopt": Command(
        "ottla.cli.commands.adopt", "check the log directories of an Apache Kafka, and run a node on them"
    ),
    "dev": Command("ottla.cli.commands.dev", "run a throw-away cluster in the foreground"),
    "snapshot": Command(
        "ottla.cli.commands.snapshot", "create, list, restore, delete consistent copies of a running local cluster"
    ),
    "fork": Command("ottla.cli.commands.fork", "run a cluster of its own on the data of a snapshot, or of a cluster"),
    "rewind": Command("ottla.cli.commands.rewind", "let a fork be what the cluster was at a time"),
    "console": Command("ottla.cli.commands.console", "serve a web page for a cluster: look, and change if allowed"),
    "topic": Command(
        "ottla.cli.commands.topic",
        "list, create, describe, copy, delete, compare topics; add partitions, delete records",
    ),
    "table": Command("ottla.cli.commands.table", "export topics as tables of Iceberg, Delta or Parquet"),
    "tier": Command("ottla.cli.commands.tier", "how far copies to remote storage are, and why they wait"),
    "sql": Command("ottla.cli.commands.sql", "ask topics that are tables by SQL, without a cluster"),
    "produce": Command("ottla.cli.commands.produce", "write records from standard input"),
    "consume": Command("ottla.cli.commands.consume", "read records to standard output"),
    "group": Command("ottla.cli.commands.group", "list, describe, reset, delete consumer groups; their lag"),
    "txn": Command("ottla.cli.commands.txn", "list, describe, abort transactions"),
    "config": Command("ottla.cli.commands.config", "get, set, unset settings of topics, brokers and groups"),
    "acl": Command("ottla.cli.commands.acl", "who may do what: list, add, remove entries, and why a request is denied"),
    "user": Command("ottla.cli.commands.user", "list, create, delete users that log in by SCRAM; change passwords"),
    "token": Command("ottla.cli.commands.token", "list, create, renew, expire delegation tokens"),
    "quota": Command("ottla.cli.commands.quota", "list, set, unset quotas of users, client ids and addresses"),
    "client": Command("ottla.cli.commands.client", "which clients push metrics"),
    "broker": Command("ottla.cli.commands.broker", "list brokers and their log directories; remove them"),
    "partition": Command("ottla.cli.commands.partition", "list partitions, elect their leaders"),
    "move": Command(
        "ottla.cli.commands.move",
        "move replicas: by hand, evenly, off a broker; with throttle, progress and a way back",
    ),
    "feature": Command("ottla.cli.commands.feature", "list, upgrade, downgrade features of the cluster"),
    "top": Command("ottla.cli.commands.top", "watch rates, loop and memory of nodes, topics, and the lag of groups"),
    "doctor": Command(
        "ottla.cli.commands.doctor", "what is wrong between here and a cluster, and in it; with remedies"
    ),
    "cluster": Command("ottla.cli.commands.cluster", "who is in the cluster, and is it healthy"),
    "mirror": Command(
        "ottla.cli.commands.mirror", "mirror topics, records, groups' offsets and ACLs in another cluster"
    ),
    "record": Command("ottla.cli.commands.record", "record the traffic between clients and a cluster, through a proxy"),
    "traffic": Command("ottla.cli.commands.traffic", "print recorded traffic, message by message"),
    "replay": Command("ottla.cli.commands.replay", "send recorded traffic again, and compare the responses"),
    "shadow": Command(
        "ottla.cli.commands.shadow", "answer clients from one cluster, ask a second one too, and report the differences"
    ),
    "registry": Command("ottla.cli.commands.registry", "serve schemas of Avro, JSON Schema and Protobuf"),
    "init": Command("ottla.cli.commands.init", "write the files of a cluster on machines elsewhere"),
    "format": Command("ottla.cli.commands.format", "format the directories of a node, once, before its first start"),
    "apply": Command(
        "ottla.cli.commands.apply", "bring topics, settings, users, ACLs and quotas to what a file declares"
    ),
    "completion": Command("ottla.cli.commands.completion", "print the completion script of a shell"),
    "context": Command("ottla.cli.commands.context", "name clusters, and choose the one that commands go to"),
    "secure": Command("ottla.cli.commands.secure", "make keys, certificates, users and client files for TLS and SASL"),
    "perf": Command("ottla.cli.commands.perf", "measure produce, consume and latency of a cluster, with percentiles"),
    "inspect": Command("ottla.cli.commands.inspect", "print the records of log files, without a broker"),
    "shims": Command("ottla.cli.commands.shims", "write launchers of Kafka's own tools into a directory"),
    "container": Command("ottla.cli.commands.container", "entry point of the container image"),
}

#: Commands that only scripts call.
HIDDEN = {"complete": Command("ottla.cli.commands.completion", "print what can follow the words of a command line")}
