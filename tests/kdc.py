"""A separate Kerberos KDC on loopback, as a process, with key tables for the principals of a test."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from ottla.server.installation import install
from tests.needs import skip_because
from tests.ports import free_ports

REALM = "OTTLA.TEST"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/lib/mit/sbin"
START_SECONDS_MAX = 30


def missing() -> str | None:
    """Return what is missing on this machine for a test with a KDC, or None."""
    absent = [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]
    if absent:
        return f"there is no {', '.join(absent)} (Debian: apt-get install krb5-kdc krb5-admin-server)"
    return None if find_spec("gssapi") is not None else f"the extra is not installed: {install('gssapi')}"


class Kdc:
    """A KDC of the realm OTTLA.TEST. A process uses it with the variables of `environment`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (self.port,) = free_ports(1)
        self.environment = {
            "KRB5_CONFIG": str(directory / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "KRB5RCACHEDIR": str(directory),
            "KRB5CCNAME": f"FILE:{directory / 'tickets'}",
        }
        (directory / "krb5.conf").write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\ndns_lookup_realm = false\n"
            "dns_canonicalize_hostname = false\nrdns = false\nudp_preference_limit = 1\n"
            f"[realms]\n{REALM} = {{\nkdc = 127.0.0.1:{self.port}\n}}\n"
        )
        (directory / "kdc.conf").write_text(
            f"[logging]\nkdc = STDERR\n[kdcdefaults]\nkdc_listen = 127.0.0.1:{self.port}\nkdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n{REALM} = {{\ndatabase_name = {directory / 'principal'}\nkey_stash_file = {directory / 'stash'}\n}}\n"
        )
        self._process: subprocess.Popen[bytes]
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "planted-master-key")

    def run(self, program: str, *words: str) -> None:
        command = [shutil.which(program, path=PATH) or program, *words]
        done = subprocess.run(command, env=os.environ | self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def keytab(self, principal: str) -> str:
        return str(self.directory / f"{principal.replace('/', '_')}.keytab")

    def add(self, principal: str, *options: str) -> str:
        """Make a principal, and return the path of its key table."""
        keytab = self.keytab(principal)
        self.run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {' '.join(options)} {principal}")
        self.run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {keytab} {principal}")
        return keytab

    def start(self) -> None:
        command = [shutil.which("krb5kdc", path=PATH) or "krb5kdc", "-n", "-r", REALM]
        with (self.directory / "kdc.log").open("w") as log:
            self._process = subprocess.Popen(command, env=os.environ | self.environment, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                ended = self._process.poll() is not None or time.monotonic() > deadline
                assert not ended, (self.directory / "kdc.log").read_text()
                time.sleep(0.02)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


@contextmanager
def kdc_in(directory: Path) -> Iterator[Kdc]:
    """Yield a KDC for this process and those that it starts. Skip the test with the reason if there can be none."""
    skip_because(missing())
    kdc = Kdc(directory)
    before = {name: os.environ.get(name) for name in kdc.environment}
    os.environ.update(kdc.environment)
    try:
        kdc.start()
        yield kdc
    finally:
        kdc.stop()
        for name, text in before.items():
            if text is None:
                del os.environ[name]
            else:
                os.environ[name] = text
