"""Every finding of `ottla doctor`: what it means, what to do, and the exit code. docs/DOCTOR.md is this table.

The exit code of the command is that of its most severe finding; among findings of the same severity, that of the first one in
this table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.cli.errors import OK, UNHEALTHY
from ottla.cli.output import Row

ERROR, WARNING, ADVICE = "error", "warning", "advice"
SEVERITIES = (ERROR, WARNING, ADVICE)

NO_ADDRESS, NO_CONNECTION, NO_PROTOCOL, NO_TLS, NO_LOGIN = 10, 11, 12, 13, 14
WRONG_ADVERTISED, NO_PERMISSION, NO_RECORD = 15, 16, 17


class FindingKind(NamedTuple):
    """A kind of finding; warnings and advice do not change the exit code."""

    severity: str
    meaning: str
    remedy: str
    exit_code: int = OK


KINDS: dict[str, FindingKind] = {
    # -- The client's side, in the order in which a connection is made
    "name-not-resolved": FindingKind(
        ERROR, "The host of a bootstrap server has no address here.",
        "correct -b, or the name service of this machine (/etc/hosts); inside of containers use the name in the network of the brokers",
        NO_ADDRESS,
    ),
    "not-reachable": FindingKind(
        ERROR, "Nothing accepts connections at a bootstrap server: nothing listens there, or a firewall is in between.",
        "start the broker, compare the port with its listeners, and look at firewalls and published ports",
        NO_CONNECTION,
    ),
    "address-not-reachable": FindingKind(
        WARNING, "A name has several addresses here, and its port takes connections at some of them only: clients that try one are refused.",
        "compare the addresses in the broker's log (Awaiting socket connections) with the name's, often 127.0.0.1 and ::1 of localhost",
    ),
    "speaks-tls": FindingKind(
        ERROR, "The listener speaks TLS, and this client does not.",
        "--config FILE with security.protocol=SSL or SASL_SSL and ssl.truststore.location; `ottla secure` makes such files",
        NO_PROTOCOL,
    ),
    "no-kafka": FindingKind(
        ERROR, "Something listens, and does not answer ApiVersions: no Kafka listener, one that expects a login, or a controller's.",
        "compare the port with the broker's listeners; one with SASL needs --config FILE with security.protocol and sasl.*",
        NO_PROTOCOL,
    ),
    "tls-rejected": FindingKind(
        ERROR, "The TLS handshake fails: the certificate is not trusted, has another name, or has expired, or the client's is refused.",
        "ssl.truststore.location needs the authority of the broker's certificate, -b a name that is in it; ssl.keystore.* where clients need one",
        NO_TLS,
    ),
    "certificate-expires": FindingKind(
        WARNING, "A broker's certificate is valid for less than 30 days.",
        "replace it; Ottla and Kafka take a new file without a restart (docs/SECURITY.md)",
    ),
    "login-rejected": FindingKind(
        ERROR, "The listener does not accept the user, the password, or the mechanism.",
        "compare sasl.mechanism and sasl.jaas.config with `ottla user list` and the listener's sasl.enabled.mechanisms",
        NO_LOGIN,
    ),
    "advertised-not-resolved": FindingKind(
        ERROR, "A broker advertises a host that has no address here: clients get to the bootstrap server, and no further.",
        "advertised.listeners needs a name that clients resolve, or a second listener for clients outside",
        WRONG_ADVERTISED,
    ),
    "advertised-loopback": FindingKind(
        ERROR, "A broker advertises this machine (localhost) to clients of another machine.",
        "advertised.listeners=PLAINTEXT://NAME:PORT with a name that clients reach",
        WRONG_ADVERTISED,
    ),
    "advertised-not-reachable": FindingKind(
        ERROR, "A broker's advertised address does not answer from here.",
        "start the broker; otherwise compare advertised.listeners with what this machine can reach",
        WRONG_ADVERTISED,
    ),
    "no-such-topic": FindingKind(
        ERROR, "The topic of --topic does not exist, or this user may not see it.",
        "`ottla topic list`; `ottla acl why USER describe topic:NAME`", NO_PERMISSION,
    ),
    "topic-not-readable": FindingKind(
        ERROR, "This user may not read the topic of --topic.",
        "`ottla acl add USER read topic:NAME`, and for a consumer `ottla acl add USER read group:NAME`", NO_PERMISSION,
    ),
    "topic-not-writable": FindingKind(
        ERROR, "This user may not write to the topic of --topic.", "`ottla acl add USER write topic:NAME`", NO_PERMISSION
    ),
    "record-not-written": FindingKind(
        ERROR, "A record could not be written to a topic that was made for it.",
        "the text has the broker's reason: too few replicas in sync, a full disk, or no permission", NO_RECORD,
    ),
    "record-not-read": FindingKind(
        ERROR, "A record that was acknowledged could not be read back within the time limit.",
        "`ottla cluster health`; a broker that is slow needs a longer --timeout", NO_RECORD,
    ),
    "no-test-topic": FindingKind(
        ADVICE, "No record was written, because this user may not create a topic.",
        "pass the properties of a user who may, or --read-only",
    ),
    "clock-differs": FindingKind(
        WARNING, "The clocks of a broker and this machine differ by more than a second: timestamps, retention and token lifetimes are off.",
        "run NTP (chrony, systemd-timesyncd) on both",
    ),
    "broker-too-old": FindingKind(
        WARNING, "A broker does not serve an API that clients of today use.", "update the broker: Kafka 4.0 or newer"
    ),
    # -- The cluster
    "broker-fenced": FindingKind(
        ERROR, "A broker is registered and does not send heartbeats.", "start it, or `ottla broker remove` it", UNHEALTHY
    ),
    "quorum-no-leader": FindingKind(
        ERROR, "The controllers have no leader: nothing about the cluster can be changed.",
        "start controllers until a majority runs (docs/OPERATIONS.md)", UNHEALTHY,
    ),
    "quorum-voter-behind": FindingKind(
        ERROR, "A voter has not fetched the metadata for ten seconds, so that fewer may fail than planned.",
        "start or repair that controller; `ottla cluster info`", UNHEALTHY,
    ),
    "partition-offline": FindingKind(
        ERROR, "A partition has no leader: nothing can be written to it or read from it.",
        "start one of its brokers; if all of them are lost, `ottla partition elect --unclean` loses records", UNHEALTHY,
    ),
    "under-min-isr": FindingKind(
        ERROR, "Fewer replicas are in sync than min.insync.replicas: acks=all is refused.",
        "start the brokers that are missing (`ottla broker list`)", UNHEALTHY,
    ),
    "under-replicated": FindingKind(
        ERROR, "Replicas of a partition are not in sync.",
        "start or repair the brokers that are missing; a slow disk or a throttle also holds replicas back", UNHEALTHY,
    ),
    "directory-offline": FindingKind(
        ERROR, "A log directory has failed.", "replace the disk, and start the broker again", UNHEALTHY
    ),
    "disk-full": FindingKind(
        ERROR, "A log directory has no room left: its broker refuses records.",
        "free the disk, lower retention.bytes or retention.ms, or `ottla move run --even`", UNHEALTHY,
    ),
    "disk-nearly-full": FindingKind(
        WARNING, "A log directory has less than a tenth of its disk left.",
        "lower retention.bytes or retention.ms, add a disk, or `ottla move run --even`",
    ),
    "quorum-of-one": FindingKind(
        WARNING, "One controller: if its disk is lost, so is the metadata of all topics.",
        "three controllers (docs/OPERATIONS.md); for development that is fine",
    ),
    "quorum-even": FindingKind(
        WARNING, "An even number of voters: one more would bear one more failure.", "add a controller, or remove one"
    ),
    "one-replica": FindingKind(
        WARNING, "Topics with one replica: their records are away with their broker, and lost with its disk.",
        "`ottla move run TOPIC --to 1,2,3`; default.replication.factor=3",
    ),
    "min-isr-one": FindingKind(
        WARNING, "Topics with min.insync.replicas=1: a record that is acknowledged with acks=all may be on one disk only.",
        "`ottla config set topic NAME min.insync.replicas=2` with three replicas",
    ),
    "min-isr-all": FindingKind(
        WARNING, "Topics whose min.insync.replicas are all replicas: no broker may stop without refused records.",
        "one replica more, or min.insync.replicas one lower",
    ),
    "unclean-election": FindingKind(
        WARNING, "Topics with unclean.leader.election.enable=true: acknowledged records may be lost for the sake of a leader.",
        "`ottla config unset topic NAME unclean.leader.election.enable`",
    ),
    "leaders-unbalanced": FindingKind(
        WARNING, "More than a tenth of the partitions are led by another broker than the preferred one.",
        "`ottla partition elect`; auto.leader.rebalance.enable does it every five minutes",
    ),
    "brokers-unbalanced": FindingKind(
        WARNING, "A broker holds half as much again as the mean.", "`ottla move plan --even` shows a plan"
    ),
    "throttle-left": FindingKind(
        WARNING, "Topics have throttled replicas, and nothing moves: a forgotten throttle slows replication down.",
        "`ottla move unthrottle`",
    ),
    "transaction-open": FindingKind(
        WARNING, "A transaction has been open for more than 15 minutes: consumers with read_committed wait behind it.",
        "`ottla txn describe ID`; `ottla txn abort ID` ends it",
    ),
    "table-lost-records": FindingKind(
        WARNING, "A topic's table lacks records: retention or ottla.table.hold.ms.max took them from the log first.",
        "a larger ottla.table.hold.ms.max, and the cause of the wait (docs/TABLES.md); what is gone does not come back",
    ),
    "table-waits": FindingKind(
        WARNING, "New records of a topic do not come into its table, and the log keeps what retention would delete, for a day at most.",
        "the text has the reason: store, catalog, registry, credentials, or a table that is another topic's (docs/TABLES.md)",
    ),
    "table-behind": FindingKind(
        WARNING, "A topic's table is more than 15 minutes behind its log, and works on it.",
        "compare ottla_table_lag_records with what is written; free a processor, or give the topic more brokers",
    ),
    "table-not-maintained": FindingKind(
        WARNING, "Small files of a topic's table are not merged, and what nothing names stays.",
        "the text has the reason; `ottla table maintain TOPIC --at LOCATION` does it at once",
    ),
    "table-rejects": FindingKind(
        ADVICE, "Records of a topic do not fit the columns of its table, since the broker was started.",
        "`ottla sql \"select reason, count(*) from TOPIC__dlq group by 1\"`, with quotes around a name with a dot or a dash",
    ),
    "tier-waits": FindingKind(
        WARNING, "Segments of a topic are not copied to remote storage. They stay on the disks of its brokers, which fill.",
        "the text has the reason: the store, its credentials, a location of another cluster, or __remote_log_metadata (docs/TIERS.md)",
    ),
    "tier-behind": FindingKind(
        WARNING, "A segment of a topic has waited for more than 15 minutes for its copy to remote storage, and nothing has failed.",
        "end the transaction that is named (`ottla txn list`); else compare `ottla tier status` with what is written",
    ),
    "features-behind": FindingKind(
        ADVICE, "All brokers serve a higher level of a feature than the cluster uses.",
        "`ottla feature upgrade` after an update that is to stay",
    ),
    "not-known": FindingKind(
        ADVICE, "Something could not be looked at: this user may not, or the broker does not answer that.",
        "the text has the reason; pass the properties of a user with Describe and DescribeConfigs on the cluster",
    ),
    "slow-python": FindingKind(
        ADVICE, "A node runs on a Python that was compiled without a profile (PGO), as pyenv does it, or for debugging: each request takes "
        "a tenth to a quarter more processor than with the Python of a distribution or of python.org.",
        "run the node with the system's Python, uv's, or the image; pyenv: PYTHON_CONFIGURE_OPTS='--enable-optimizations --with-lto'",
    ),
    "old-client": FindingKind(
        ADVICE, "A client library is connected that is older than its oldest supported release.",
        "update the application: kafka-clients 3.x, librdkafka 2.x, or a newer release of its library",
    ),
    "clients-not-known": FindingKind(
        ADVICE, "Which client libraries are connected is not known: no admin listener of Ottla's brokers was named, or none answers.",
        "set ottla.admin.listener in the brokers' files, and pass --admin-port; Apache Kafka shows them by JMX only",
    ),
    "librdkafka-backoff": FindingKind(
        ADVICE, "A librdkafka client (confluent-kafka, node-rdkafka, rdkafka) is connected. When its queue is full, it waits for "
        "fetch.queue.backoff.ms, one second, before it fetches again: a fast consumer then stands still for most of the time.",
        "fetch.queue.backoff.ms=10 in its properties, or a larger queued.max.messages.kbytes",
    ),
}  # fmt: skip


class DoctorFinding(NamedTuple):
    """A finding: its kind, where it is, and what was seen there."""

    kind: str
    place: str
    problem: str

    def row(self) -> Row:
        """Return the fields that are shown."""
        kind = KINDS[self.kind]
        return {
            "severity": kind.severity,
            "finding": self.kind,
            "place": self.place,
            "problem": self.problem,
            "remedy": kind.remedy,
            "exit_code": kind.exit_code,
        }


def in_order(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    """Return the findings, the most severe first, then in the order of the table."""
    order = list(KINDS)
    return sorted(findings, key=lambda found: (SEVERITIES.index(KINDS[found.kind].severity), order.index(found.kind)))


def exit_code(findings: Iterable[DoctorFinding]) -> int:
    """Return the exit code of all findings together."""
    found = in_order(findings)
    return KINDS[found[0].kind].exit_code if found else OK
