"""The files of a cluster with TLS and SASL, for `ottla secure init DIR`, `ottla init DIR --secure`, `ottla dev --secure`, and
tests.

    ca.pem, ca-key.pem       a certificate authority, which signs the nodes' certificates
    nodes/NAME.pem           a node's key and certificate
    nodes/NAME.properties    its security, to be appended to a server.properties; with `ottla init` the whole server.properties
    clients/                 three files for each user:
        .properties          for Java's clients and tools, and for ottla --config
        .librdkafka          for librdkafka's (confluent-kafka, kcat -F)
        .py                  keyword arguments of kafka-python and aiokafka
    users                    the arguments of `kafka-storage format --add-scram`, one a line

Clients log in by SCRAM-SHA-512, and may do nothing until access control entries allow it; the user admin is a super user. Nodes
log in to each other by PLAIN over TLS, because their users must not be in the metadata that they want to read; it is the only
mechanism of the listener CONTROLLER. All passwords are random.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ottla.client.failures import Failure, Kind
from ottla.server.extras import CRYPTOGRAPHY, missing

if TYPE_CHECKING:
    from ottla.local.certificates import Authority

MECHANISM, NODE_MECHANISM = "SCRAM-SHA-512", "PLAIN"
NODE_USER, ADMIN = "node", "admin"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PASSWORD_BYTES = 18
PRIVATE = 0o600
#: Names are used in file names and in JAAS texts.
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@dataclass(frozen=True, slots=True)
class SecureFiles:
    """A directory made by `make`, with the passwords of its SCRAM users."""

    directory: str
    passwords: Mapping[str, str]

    def with_user(self, name: str, password: str) -> SecureFiles:
        """Return the files with one more user. Nothing is written for that user."""
        return replace(self, passwords={**self.passwords, name: password})

    @property
    def ca(self) -> str:
        return os.path.join(self.directory, "ca.pem")

    @property
    def add_scram(self) -> list[str]:
        """The users as arguments of `kafka-storage format --add-scram`."""
        return [f"{MECHANISM}=[name={user},password={text}]" for user, text in self.passwords.items()]

    def node_file(self, name: str) -> str:
        return os.path.join(self.directory, "nodes", f"{name}.properties")

    def node_properties(self, name: str) -> dict[str, str]:
        from ottla.server.config.properties_file import read_properties

        path = self.node_file(name)
        with open(path, "rb") as file:
            return read_properties(file.read(), path)

    def client_file(self, user: str = ADMIN) -> str:
        return os.path.join(self.directory, "clients", f"{user}.properties")

    def librdkafka_file(self, user: str = ADMIN) -> str:
        return os.path.join(self.directory, "clients", f"{user}.librdkafka")

    def console_token(self) -> str:
        """Return the path of a file with a token of the console, which is made at the first call.

        A process that can read it acts for the user who runs the cluster.

        Raises:
            Failure: the file cannot be written.
        """
        return self._made("console-token", secrets.token_urlsafe(PASSWORD_BYTES) + "\n")

    def registry_users(self) -> str:
        """Return the path of a file with the registry's logins, which are those of the cluster.

        Raises Failure as `console_token`.
        """
        return self._made("registry-users", "".join(f"{user}: {text}\n" for user, text in self.passwords.items()))

    def registry_client(self, user: str = ADMIN) -> str:
        """Return the path of a file for --registry-config. Raises Failure as `console_token`."""
        login = property_lines({"basic.auth.user.info": f"{user}:{self.passwords[user]}"})
        return self._made(os.path.join("clients", f"{user}.registry"), login)

    def _made(self, name: str, text: str) -> str:
        path = os.path.join(self.directory, name)
        try:
            with suppress(FileExistsError):
                write_new(path, text)
        except OSError as failure:
            raise Failure(f"{path} cannot be written: {failure.strerror}") from None
        return path

    def librdkafka(self, user: str = ADMIN) -> dict[str, str]:
        """Settings of confluent-kafka."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.ca,
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": self.passwords[user],
        }


def new_directory(directory: str, names: Iterable[str]) -> str:
    """Make the directory, and return its absolute path; `names` of nodes and users become names of files in it.

    Raises:
        Failure: the directory is not empty, or a name has invalid characters.
        OSError: it cannot be made.
    """
    for name in names:
        _check_name(name)
    directory = os.path.abspath(directory)
    os.makedirs(directory, exist_ok=True)
    if os.listdir(directory):
        raise Failure(f"{directory} is not empty: keys in use would be replaced", "name another", Kind.WRONG)
    return directory


def _check_name(name: str) -> None:
    if not name or not NAME_CHARACTERS.issuperset(name) or name == NODE_USER:
        raise Failure(f"{name!r} cannot be the name of a node or user", "letters, digits, '.', '_' and '-'", Kind.WRONG)


def make(
    directory: str,
    nodes: Mapping[str, Sequence[str]],
    users: Sequence[str] = (),
    *,
    installed: str | None = None,
    properties: Mapping[str, Mapping[str, str]] = {},
) -> SecureFiles:
    """Make the directory; `nodes` has the host names and addresses of each node.

    There is always a user admin. `installed` is the directory for a node's files on its own machine, if that is another one.
    `properties` has by the node's name the text before the security in its file.

    Raises:
        Failure: the directory is not empty, a name has invalid characters, or the directory cannot be written.
    """
    if reason := missing(CRYPTOGRAPHY, "making certificates"):
        raise Failure(reason, f"install {CRYPTOGRAPHY} of your distribution, or make the files on another machine")
    from ottla.local.certificates import Authority

    try:
        directory = new_directory(directory, [*nodes, *users])
        passwords = {user: secrets.token_urlsafe(PASSWORD_BYTES) for user in dict.fromkeys([ADMIN, *users])}
        files = SecureFiles(directory, passwords)
        authority = Authority.create("Ottla development CA")
        write_new(files.ca, authority.pem, mode=0o644)
        write_new(os.path.join(directory, "ca-key.pem"), _key(authority))
        write_new(os.path.join(directory, "users"), "".join(f"{line}\n" for line in files.add_scram))
        for name, security in _make_nodes(files, authority, nodes, installed).items():
            write_new(files.node_file(name), property_lines({**properties.get(name, {}), **security}))
        for user in passwords:
            _make_client(files, user)
    except OSError as failure:
        raise Failure(f"{failure.filename} cannot be written: {failure.strerror}") from None
    return files


def issue(directory: str, name: str, hosts: Sequence[str]) -> str:
    """Make the key and certificate of one more node, with the authority that `make` left in the directory.

    Return the path of the file.

    Raises:
        Failure: there is no authority, the node has a certificate already, or its name has invalid characters.
    """
    _check_name(name)
    store = os.path.join(directory, "nodes", f"{name}.pem")
    if os.path.exists(store):
        raise Failure(f"{store} is there already", f"`ottla secure renew {directory} {name}` replaces it", Kind.WRONG)
    issued = _authority_in(directory).issue(name, hosts)
    try:
        write_new(store, issued.key_pem + issued.chain_pem)
    except OSError as failure:
        raise Failure(f"{failure.filename} cannot be written: {failure.strerror}") from None
    return store


def renew(directory: str, store: str) -> None:
    """Replace a node's key and certificate by new ones with the same names, signed by the authority that `make` left in the directory.

    The new file gets the old one's owner, group and mode, and replaces it by a rename, so that a running node can read it at
    once.

    Raises:
        Failure: the authority or the old certificate cannot be read, or the file cannot be replaced. The old one is still there.
    """
    from ottla.local.certificates import names_of

    new = f"{store}.new"
    try:
        with open(store, "rb") as file:
            was, data = os.fstat(file.fileno()), file.read()
        issued = _authority_in(directory).issue(*names_of(data))
        with suppress(FileNotFoundError):
            os.remove(new)  # an earlier attempt may have left it
        write_new(new, issued.key_pem + issued.chain_pem)
        if (was.st_uid, was.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(new, was.st_uid, was.st_gid)
        os.chmod(new, was.st_mode & 0o7777)
        os.rename(new, store)
    except OSError as failure:
        with suppress(OSError):
            os.remove(new)
        raise Failure(
            f"{failure.filename}: {failure.strerror}; {store} is as it was",
            "run it as the owner of the file or as root, with free room on its disk",
        ) from None
    except ValueError as failure:
        raise Failure(
            f"{store} cannot be renewed: {failure}", "name a key store of `ottla secure issue`", Kind.WRONG
        ) from None


def _authority_in(directory: str) -> Authority:
    """Read the authority that `make` has left in the directory. Raises Failure."""
    from ottla.local.certificates import Authority

    try:
        parts = []
        for file in ("ca.pem", "ca-key.pem"):
            with open(os.path.join(directory, file), "rb") as opened_file:
                parts.append(opened_file.read())
        return Authority.read(*parts)
    except OSError as failure:
        raise Failure(
            f"{failure.filename}: {failure.strerror}",
            "`ottla init --secure` or `ottla secure init` makes the authority",
        ) from None
    except ValueError as failure:
        raise Failure(f"the authority in {directory} cannot be read: {failure}") from None


def opened(directory: str) -> SecureFiles | None:
    """Return the files that `make` has left in the directory, or None if there are none."""
    path = os.path.join(directory, "users")
    if not os.path.exists(path):
        return None
    passwords = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            name, _, password = line.strip().rstrip("]").partition("[name=")[2].partition(",password=")
            passwords[name] = password
    return SecureFiles(os.path.abspath(directory), passwords)


def _make_nodes(
    files: SecureFiles, authority: Authority, nodes: Mapping[str, Sequence[str]], installed: str | None
) -> dict[str, dict[str, str]]:
    """Write the key and the certificate of each node, and return its properties."""
    made = {}
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    login = f'{PLAIN_MODULE} required username="{NODE_USER}" password="{password}" user_{NODE_USER}="{password}";'
    for name, hosts in nodes.items():
        issued = authority.issue(name, hosts)
        store = os.path.join(files.directory, "nodes", f"{name}.pem")
        write_new(store, issued.key_pem + issued.chain_pem)
        used = [store, files.ca]
        if installed is not None:
            used = [os.path.join(installed, os.path.basename(path)) for path in used]
        made[name] = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": used[0],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": used[1],
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SASL_SSL",
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.enabled.mechanisms": f"{MECHANISM},{NODE_MECHANISM}",
            "listener.name.controller.sasl.enabled.mechanisms": NODE_MECHANISM,
            "sasl.mechanism.inter.broker.protocol": NODE_MECHANISM,
            "sasl.mechanism.controller.protocol": NODE_MECHANISM,
            **{f"listener.name.{listener}.plain.sasl.jaas.config": login for listener in ("sasl_ssl", "controller")},
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{NODE_USER};User:{ADMIN}",
        }
    return made


def _make_client(files: SecureFiles, user: str) -> None:
    password = files.passwords[user]
    java = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": files.ca,
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="{user}" password="{password}";',
    }
    python = {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": files.ca,
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }
    clients = os.path.join(files.directory, "clients")
    write_new(files.client_file(user), property_lines(java))
    write_new(files.librdkafka_file(user), property_lines(files.librdkafka(user)))
    write_new(
        os.path.join(clients, f"{user}.py"),
        '"""KafkaProducer(bootstrap_servers=..., **SECURITY) of kafka-python; aiokafka takes ssl_context for ssl_cafile."""\n\n'
        "SECURITY = {\n" + "".join(f"    {name!r}: {text!r},\n" for name, text in python.items()) + "}\n",
    )


def property_lines(properties: Mapping[str, str]) -> str:
    """Return the text of a properties file."""
    return "".join(f"{name}={text}\n" for name, text in properties.items())


def _key(authority: Authority) -> str:
    from ottla.local.certificates import key_pem

    return key_pem(authority.key)


def write_new(path: str, text: str, mode: int = PRIVATE) -> None:
    """Write a new file, and create the directories above it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)
