"""The interface between a connection and handlers: the context of a request, the reply that comes later, and the objects that a
connection is given.

A connection is given the receiver of its frames, a fast path, its login, its listener, and responses whose turn has not come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.primitives import Pieces
from ottla.server.network.frames import Buffer, ReceiveBuffer
from ottla.server.network.limits import ConnectionLimits
from ottla.server.network.pauses import Pause, RequestTurn
from ottla.server.principal import Principal

T = TypeVar("T")
S = TypeVar("S")
ResponseT = TypeVar("ResponseT", contravariant=True)
Served = TypeVar("Served", contravariant=True)

#: A connection keeps this many contexts; clients use a dozen pairs of API and version.
CONTEXTS_MAX = 64
#: A connection that writes to several topics in turn repeats no request. After this many requests that a fast path has left to
#: the handler it is dropped, and the next request makes a new one, which takes as long as three requests.
MISSES_MAX = 32


class Peer(Protocol):
    """The peer: a `Connection`, or the original client if a broker has forwarded the request in an envelope."""

    @property
    def id(self) -> str: ...
    @property
    def listener_name(self) -> str: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def peer_host(self) -> str: ...
    @property
    def peer_port(self) -> int: ...
    @property
    def local_host(self) -> str: ...
    @property
    def local_port(self) -> int: ...
    @property
    def client_software_name(self) -> str: ...
    @property
    def client_software_version(self) -> str: ...
    @property
    def opened_ns(self) -> int: ...
    def on_close(self, callback: Callable[[], None]) -> None: ...
    def pause(self) -> Pause: ...
    def close(self, reason: str) -> None: ...


@dataclass(slots=True, eq=False, repr=False)
class RequestContext:
    """The context of a request.

    It is shared by all requests of one connection that have the same API, version and client id; it is read-only.
    """

    api_key: int
    api_version: int
    client_id: str | None
    connection: Peer

    def __repr__(self) -> str:
        return f"<RequestContext api_key={self.api_key} v{self.api_version} client_id={self.client_id!r} {self.connection.id}>"


class PendingResponse:
    """A pending response, whose turn has not come.

    `parts` are those of its frame, or None if it is not complete (`pending_reply.PendingReply`).
    """

    __slots__ = ("nbytes", "parts")

    def __init__(self, parts: Pieces | None, nbytes: int) -> None:
        self.parts = parts
        self.nbytes = nbytes

    def cancel(self) -> None:
        """Take note that the connection was closed. Only a response without parts has something to cancel."""


class Requests(Protocol[Served]):
    """The receiver of a connection's frames: the dispatcher or the login."""

    turn: RequestTurn
    mono_ns: Callable[[], int]

    def dispatch(self, connection: Served, buf: Buffer, pos: int, end: int) -> None:
        """Serve the frame buf[pos:end]."""


class Renewable(Protocol):
    """The login of a connection to a SASL listener."""

    @property
    def has_succeeded(self) -> bool: ...
    def renew(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse: ...


class Acceptor(Protocol[Served]):
    """The listener that accepted the connection."""

    name: str
    inbox: ReceiveBuffer
    limits: ConnectionLimits
    unread: int
    held_up: int
    bytes_in: int
    bytes_out: int

    def is_too_fast(self, connection: Served) -> bool: ...
    def admit(self, connection: Served) -> bool: ...
    def refuse(self, connection_id: str, reason: str) -> None: ...
    def forget(self, connection: Served) -> None: ...
    def linger(self, connection: Served) -> None: ...
    def idle_expired(self, connection: Served) -> None: ...


#: What a fast path says of a request: nothing has changed, and the handler serves it; its response has left; it comes later.
NOT_SERVED, ANSWERED, DELAYED = range(3)


class Counting(Protocol):
    """The route of a request."""

    def count(self, elapsed_ns: int) -> None:
        """Count a request that has been answered."""


class FastPath(Protocol[Served]):
    """The fast path of a connection: it serves requests that repeat an earlier one in all but a few fields.

    A client in its steady state sends the same bytes again and again: only the correlation id, the partition and the records of
    a Produce differ, or the session epoch and the positions of a Fetch. Once one such request has been decoded and served, the
    next that begins with the same bytes needs no decoding, because equal bytes have equal meaning. The connection tries its
    fast path first. It either serves the request exactly as its handler would, or changes nothing and leaves the request to the
    dispatcher and the handler.
    """

    @property
    def route(self) -> Counting: ...

    def serve(self, connection: Served, buf: Buffer, pos: int, end: int) -> int:
        """Serve the frame buf[pos:end], which begins with its size: ANSWERED, DELAYED, or NOT_SERVED.

        buf has 12 bytes at least. A size that is not that of the frame is NOT_SERVED. The connection counts what is ANSWERED.
        """


class Receiver(Protocol[ResponseT]):
    """The receiver of the response."""

    def completed(self, outcome: ResponseT | KafkaError) -> None: ...


class Reply(Generic[T]):
    """A response that comes later, and keeps its place in the order of the connection's responses; no task, no asyncio future.

        reply: Reply[ProduceResponse] = Reply()
        partition.when_committed(offset, lambda: reply.complete(response))
        reply.on_cancel = ...             # called when the connection is closed first
        return reply

    `complete` is called exactly once; after `cancel` the response is dropped. A reply has one receiver: the connection, or the
    next reply of a chain. So `then` adds a step to the same reply, and makes no second one. Do not write `Reply[T]()`: the call
    of a subscripted class takes a microsecond.

    A KafkaError is a result too: `on_error` makes the API's response from it. Without `on_error` it goes to the receiver, and
    the connection responds with the API's form of errors (server/network/error_reply.py).
    """

    __slots__ = ("_outcome", "_receiver", "_steps", "cancelled", "done", "kept_bytes", "on_cancel")

    _outcome: T | KafkaError  # set if the response came before the receiver

    def __init__(self, on_error: Callable[[KafkaError], T] | None = None, kept_bytes: int = 0) -> None:
        # The bytes of the request that the handler keeps until it responds. Above a limit the connection stops reading.
        self.kept_bytes = kept_bytes
        self.done = False
        self.cancelled = False
        self.on_cancel: Callable[[], None] | None = None
        self._receiver: Receiver[T] | None = None
        self._steps: tuple[Callable[[Any], Any], ...] = () if on_error is None else (partial(_if_failed, on_error),)

    def complete(self, outcome: T | KafkaError) -> None:
        """Complete the reply with the response or the error. None means that no response is sent (acks=0)."""
        assert not self.done, "a request was answered twice"
        self.done = True
        self.on_cancel = None
        if self._steps:
            self._run_steps(outcome)
            return
        receiver = self._receiver
        if receiver is None:
            self._outcome = outcome
        else:
            self._receiver = None
            receiver.completed(outcome)

    #: A reply can also be the receiver of another one.
    completed = complete

    def follow(self, answer: T | Reply[T]) -> None:
        """Complete the reply with the response of another reply, now or when it comes."""
        if not isinstance(answer, Reply):
            self.complete(answer)
        elif answer.done:
            self.complete(answer.take())
        elif self.cancelled:
            answer.cancel()
        else:
            self.on_cancel = answer.cancel
            answer.attach(self)

    def then(self, step: Callable[[T], S | Reply[S]]) -> Reply[S]:
        """Return the reply with `step(response)` as its response. If the step returns a reply, that reply's response is used.

        If there is an error, the step does not run. A KafkaError from the step becomes the result. The step also runs after `cancel`.
        """
        self._add(partial(_unless_failed, step))
        return cast("Reply[S]", self)

    def otherwise(self, on_error: Callable[[KafkaError], T]) -> Reply[T]:
        """Return the same reply, whose response is `on_error(error)` when it fails."""
        self._add(partial(_if_failed, on_error))
        return self

    def when_done(self, callback: Callable[[T | KafkaError], None]) -> None:
        """Call `callback` with the response or the error: now if it is there, else later."""
        self._add(callback)

    def attach(self, receiver: Receiver[T]) -> None:
        """Set the receiver of a reply that is not complete."""
        self._receiver = receiver

    def take(self) -> T | KafkaError:
        """Return the response of a reply that was complete before it had a receiver."""
        outcome = self._outcome
        del self._outcome
        return outcome

    def cancel(self) -> None:
        """Cancel the reply: the connection has been closed, so the response is not needed."""
        if self.done:
            return
        self._receiver = None
        self.cancelled = True
        if self.on_cancel is not None:
            on_cancel, self.on_cancel = self.on_cancel, None
            on_cancel()

    def _add(self, step: Callable[[T | KafkaError], Any]) -> None:
        if not self.done:
            self._steps = (*self._steps, step)
            return
        self._steps = (step,)
        self._run_steps(self.take())

    def _run_steps(self, outcome: Any) -> None:
        steps, self._steps = self._steps, ()
        for count, step in enumerate(steps, 1):
            try:
                outcome = step(outcome)
            except KafkaError as error:
                outcome = error
            if isinstance(outcome, Reply):
                self._steps = steps[count:]
                break
        self.done = False
        self.follow(outcome)


#: The result of a handler: the response, or a reply that is completed later.
Answer: TypeAlias = T | Reply[T]


def then(answer: T | Reply[T], step: Callable[[T], S | Reply[S]]) -> S | Reply[S]:
    """Call `step(response)`, now or when the response comes."""
    if not isinstance(answer, Reply):
        return step(answer)
    if not answer.done:
        return answer.then(step)
    outcome = answer.take()
    if isinstance(outcome, KafkaError):
        raise outcome
    return step(outcome)


def gather(answers: Sequence[T | Reply[T]], combine: Callable[[list[T]], S]) -> S | Reply[S]:
    """Return `combine(responses)`, or a reply if one of them is still missing; the first error if one has failed."""
    waiting = [answer for answer in answers if isinstance(answer, Reply) and not answer.done]
    if not waiting:
        return combine([_taken(answer) for answer in answers])
    whole: Reply[S] = Reply()
    responses: list[Any] = list(answers)
    left = len(answers)

    def arrived(index: int, outcome: T | KafkaError) -> None:
        nonlocal left
        left -= 1
        responses[index] = outcome
        if not left:
            failure = next((each for each in responses if isinstance(each, KafkaError)), None)
            whole.complete(combine(responses) if failure is None else failure)

    def cancel() -> None:
        for reply in waiting:
            reply.cancel()

    whole.on_cancel = cancel
    for index, answer in enumerate(answers):
        if isinstance(answer, Reply):
            answer.when_done(partial(arrived, index))
        else:
            left -= 1
    return whole


def _unless_failed(step: Callable[[T], S], outcome: T | KafkaError) -> S | KafkaError:
    return outcome if isinstance(outcome, KafkaError) else step(outcome)


def _if_failed(on_error: Callable[[KafkaError], T], outcome: T | KafkaError) -> T:
    return on_error(outcome) if isinstance(outcome, KafkaError) else outcome


def _taken(answer: T | Reply[T]) -> T:
    outcome = answer.take() if isinstance(answer, Reply) else answer
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome
