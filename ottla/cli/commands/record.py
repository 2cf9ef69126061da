"""The command `ottla record`: a proxy in front of a cluster, which writes all requests and responses to a file."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Annotated, BinaryIO

from ottla.cli.app import App, Parameter, option_group
from ottla.cli.application import chosen, run
from ottla.cli.errors import FAILED, OK, USAGE, CommandFailed
from ottla.cli.output import note
from ottla.cli.shared_options import ServerKey, check_pair, read_address
from ottla.client.security import check_names, peer_security
from ottla.server.address import Address
from ottla.server.network.handshakes import ServerSide, keep_asked_name
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity
from ottla.server.world import RealWorld, World
from ottla.traffic.masking import Masking
from ottla.traffic.proxy import Proxy, ProxyOptions
from ottla.traffic.record_noise import RecordNoise
from ottla.traffic.recorder import Recorder, Spool
from ottla.traffic.relay import Tap
from ottla.web.certificate import ServedCertificate

app = App("record", "Record the traffic between clients and a cluster, through a proxy.")

main = partial(run, app)

NOISE_KEY_BYTES = 32

Listen = Annotated[str, Parameter(help="HOST:PORT that clients connect to; further brokers get the ports after it.")]
To = Annotated[str, Parameter(help="HOST:PORT of a broker of the cluster.")]


@option_group
class ProxySecurity:
    """How a proxy is secured on its two sides."""

    config: Annotated[
        str | None,
        Parameter(help="Client properties by which the proxy itself connects to brokers (TLS, login): they end here."),
    ] = None
    advertise: Annotated[
        str | None, Parameter(help="The host that clients connect to, instead of that of --listen.")
    ] = None
    cert: Annotated[str | None, Parameter(help="A certificate chain in PEM: clients connect by TLS.")] = None
    key: ServerKey = None


SECURITY = ProxySecurity()


@app.default
async def record(
    file: str,
    /,
    *,
    listen: Listen,
    to: To,
    mask_records: Annotated[
        bool, Parameter(help="Noise of the same length in place of keys, values and headers of records.")
    ] = False,
    security: ProxySecurity = SECURITY,
) -> int:
    """Record into FILE until it is interrupted. Passwords and tokens are not written."""
    with _created(file) as recording:
        real = RealWorld(asyncio.get_running_loop())
        try:
            failed: list[OSError] = []

            def fail(failure: OSError) -> None:
                failed.append(failure)
                note(f"the recording has ended, clients go on: {file} cannot be written: {failure.strerror}")

            noise = RecordNoise(real.world.rng.randbytes(NOISE_KEY_BYTES)) if mask_records else None
            spool = Spool(real.world, recording, fail)
            recorder = Recorder(real.world.clock, spool, Masking(noise))
            async with proxied(real.world, listen, to, recorder, security) as proxy:
                await until_interrupted()
            await spool.close()
            lost = f", {recorder.lost} frames lost because the disk was too slow" if recorder.lost else ""
            note(f"{recorder.frames} frames of {proxy.connections} connections{lost}")
            return FAILED if failed else OK
        finally:
            await real.tasks.close()
            await real.close()


@contextmanager
def _created(path: str) -> Iterator[BinaryIO]:
    """Create a file that only its owner can read. If the command fails before it has written anything, the file is removed."""
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0)
    except FileExistsError:
        raise CommandFailed(f"{path} exists", "a recording replaces nothing: name another file", USAGE) from None
    except OSError as failure:
        raise CommandFailed(f"{path} cannot be created: {failure.strerror}", None, USAGE) from None
    with file:
        try:
            yield file
        except BaseException:
            if not os.fstat(file.fileno()).st_size:
                os.unlink(path)
            raise


@asynccontextmanager
async def proxied(world: World, listen: str, to: str, tap: Tap, security: ProxySecurity) -> AsyncIterator[Proxy]:
    """Run a proxy, and say where it listens.

    Raises:
        CommandFailed: an option is wrong, or the port cannot be had.
    """
    check_pair(security.cert, security.key)
    options = ProxyOptions(
        read_address("--listen", listen, is_own=True),
        read_address("--to", to),
        _peer_security(world, security.config),
        _served_tls(security),
        security.advertise,
    )
    proxy = Proxy(world, options, tap, note)
    try:
        port = await proxy.start()
    except OSError as failure:
        raise CommandFailed(f"cannot listen at {listen}: {failure.strerror or failure}", None, USAGE) from None
    try:
        note(f"clients connect to {Address(options.advertised_host or options.listen.host or 'localhost', port)}")
        yield proxy
    finally:
        await proxy.close()


async def until_interrupted() -> None:
    """Return after SIGINT or SIGTERM."""
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    try:
        await over.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _peer_security(world: World, path: str | None) -> PeerSecurity:
    if path is None:
        return PLAINTEXT
    _, properties, _ = chosen("unused:1", path, None)
    check_names(properties, path)
    return peer_security(world, properties, path)


def _served_tls(security: ProxySecurity) -> ssl.SSLContext | None:
    if security.cert is None:
        return None
    try:
        context = ServedCertificate(security.cert, security.key).context
    except OSError as failure:
        raise CommandFailed(f"{security.cert} and {security.key} cannot be used: {failure}", None, USAGE) from None
    context.sslobject_class = ServerSide
    context.sni_callback = keep_asked_name
    return context
