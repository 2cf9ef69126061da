"""The certificate of an HTTP server.

It is reloaded while the server runs, so that a renewal needs no restart of a registry or a console.
"""

from __future__ import annotations

import logging
import os
import ssl

log = logging.getLogger(__name__)

#: A renewed certificate that could not be used is tried again after this time: its permissions may have been repaired, which
#: the file's times may not show.
RETRY_S = 5.0
#: The time between two log lines about a certificate that cannot be used.
REPEAT_S = 600.0


class ServedCertificate:
    """The TLS context from PEM files. New connections get the context of the newest files that could be used."""

    def __init__(self, certificate: str, key: str | None) -> None:
        """Read the files.

        Raises:
            OSError: they cannot be read, or do not belong together.
        """
        self._certificate, self._key = certificate, key
        self._states = self._files()
        self.context = self._load()
        self._rejection: str | None = None
        self._retry_s = self._repeat_s = 0.0

    def look(self, now_s: float) -> None:
        """Load changed files. If they cannot be used, the certificate stays as it is, and they are tried again later."""
        states = self._files()
        if states == self._states and (self._rejection is None or now_s < self._retry_s):
            return
        # The states of the files before they are loaded: if a file is replaced meanwhile, that counts as another change.
        self._states = states
        try:
            self.context = self._load()
        except OSError as failure:
            self._reject(str(failure), now_s)
            return
        self._rejection = None
        log.info("The certificate of %s has been replaced: its files have changed", self._certificate)

    def _reject(self, why: str, now_s: float) -> None:
        self._retry_s = now_s + RETRY_S
        if why != self._rejection or now_s >= self._repeat_s:
            log.error(
                "The certificate of %s stays as it is: %s. Check the files and their rights", self._certificate, why
            )
            self._repeat_s = now_s + REPEAT_S
        self._rejection = why

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # OpenSSL would ask for the password of a key at the terminal, and the server's event loop would wait for it.
        context.load_cert_chain(self._certificate, self._key, password=_no_password)
        return context

    def _files(self) -> list[tuple[int, int]]:
        """Return the time of the last change (also of permissions) and the size of each file; -1 for a file that cannot be
        read.
        """
        states = []
        for path in (self._certificate, self._key):
            try:
                found = None if path is None else os.stat(path)
            except OSError:
                found = None
            states.append((-1, -1) if found is None else (found.st_ctime_ns, found.st_size))
        return states


def _no_password() -> str:
    return ""
