"""The commands of `ottla txn`: list, describe, abort, and forget.

The last one gives up a record of `__transaction_state` that no broker can read.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from ottla.broker.coordinator.coordinator import partition_for
from ottla.cli.app import App, Parameter
from ottla.cli.application import (
    CONNECTION,
    LISTING,
    ConnectionOptions,
    DryRun,
    ListingOptions,
    Yes,
    connect,
    run,
)
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import confirm, note, print_rows, would
from ottla.cli.stories import NO_STORY, StoryOptions, show_story
from ottla.client.admin_listeners import story_of_transaction
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.client.producer import ClusterProducer
from ottla.client.transactions import OPEN_STATES, abort_transaction, describe_transaction, list_transactions
from ottla.client.values import time_text
from ottla.controller.metadata.topic_names import ADMIN_CLIENT_ID, TRANSACTION_STATE_TOPIC
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.coordinator_records import TransactionLogKey, encode_key
from ottla.protocol.records.record import NewRecord

app = App("txn", "Transactions: list, describe, abort; forget ids whose record cannot be read.")

LIST_COLUMNS = ("transactional_id", "state", "producer_id", "coordinator")
DESCRIBE_COLUMNS = (*LIST_COLUMNS, "producer_epoch", "began", "timeout_ms", "partitions")

Ids = Annotated[list[str], Parameter(help="Transactional ids.")]

main = partial(run, app)


@app.named("list")
async def list_(
    *,
    state: Annotated[
        list[str] | None, Parameter(help="Only in this state: Ongoing, PrepareCommit, CompleteAbort, ...")
    ] = None,
    producer_id: Annotated[list[int] | None, Parameter(help="Only of these producers.")] = None,
    open_seconds: Annotated[float | None, Parameter(name="--open-for", help="Only open for this many seconds.")] = None,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show the transactional ids and the states of their transactions."""
    if open_seconds is not None and not open_seconds >= 0:
        raise CommandFailed(f"--open-for {open_seconds:g} is below 0", None, USAGE)
    open_ms = -1 if open_seconds is None else int(open_seconds * 1000)
    async with connect(connection) as cluster:
        found = await list_transactions(
            cluster,
            states=state or (OPEN_STATES if open_ms >= 0 else ()),
            producer_ids=producer_id or (),
            open_ms_min=open_ms,
        )
    print_rows([row._asdict() for row in found], LIST_COLUMNS, listing.output)


@app.command
async def describe(
    ids: Ids,
    /,
    *,
    story: StoryOptions = NO_STORY,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show transactions: since when they are open, and the partitions in them. Or the story of each id: who fenced its producer."""
    rows = []
    async with connect(connection) as cluster:
        if story.story:
            for transactional_id in ids:
                ask = partial(story_of_transaction, transactional_id=transactional_id)
                look = partial(describe_transaction, cluster, transactional_id)
                await show_story(cluster, story, ask, look, listing.output)
            return
        for transactional_id in ids:
            node, found = await describe_transaction(cluster, transactional_id)
            places = [f"{topic.topic}-{index}" for topic in found.topics for index in topic.partitions]
            rows.append(
                {
                    "transactional_id": transactional_id,
                    "state": found.transaction_state,
                    "producer_id": found.producer_id,
                    "coordinator": node,
                    "producer_epoch": found.producer_epoch,
                    "began": time_text(found.transaction_start_time_ms),
                    "timeout_ms": found.transaction_timeout_ms,
                    "partitions": places,
                }
            )
    print_rows(rows, DESCRIBE_COLUMNS, listing.output)


@app.command
async def abort(
    ids: Ids, /, *, dry_run: DryRun = False, yes: Yes = False, connection: ConnectionOptions = CONNECTION
) -> None:
    """Abort the open transactions of these ids. Their producers are fenced: a running application ends with an error."""
    async with connect(connection) as cluster:
        for transactional_id in ids:
            _, found = await describe_transaction(cluster, transactional_id)
            if dry_run:
                would(f"abort the transaction of {transactional_id} ({found.transaction_state})")
                continue
            confirm(f"abort the transaction of {transactional_id} ({found.transaction_state})?", yes)
            await abort_transaction(cluster, transactional_id)
            note(f"aborted {transactional_id}")


@app.command
async def forget(ids: Ids, /, *, dry_run: DryRun = False, connection: ConnectionOptions = CONNECTION) -> None:
    """Forget transactional ids that get UNKNOWN_SERVER_ERROR because their newest record cannot be read.

    A newer version may be able to read it: then start that one. If the record is of a transaction that was committed, markers
    that were not written yet never will be. `kafka-transactions find-hanging` shows what stays open, and its `abort` ends it.
    """
    async with connect(connection, client_id=ADMIN_CLIENT_ID) as cluster:
        for transactional_id in ids:
            if not await _is_unreadable(cluster, transactional_id):
                raise CommandFailed(
                    f"the records of transactional id {transactional_id} can be read",
                    "`ottla txn describe` shows its state, and `ottla txn abort` ends its transaction",
                )
        if dry_run:
            would(f"forget {', '.join(ids)}")
            return
        producer = ClusterProducer(cluster, TRANSACTION_STATE_TOPIC)
        await producer.start()
        for transactional_id in ids:
            key = encode_key(TransactionLogKey(transactional_id=transactional_id))
            await producer.send(NewRecord(key, None), partition_for(transactional_id, producer.partitions))
        await producer.flush()
        for transactional_id in ids:
            print(f"forgot {transactional_id}")


async def _is_unreadable(cluster: ClusterClient, transactional_id: str) -> bool:
    try:
        await describe_transaction(cluster, transactional_id)
    except Failure as fault:
        if fault.code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
            return fault.code == ErrorCode.UNKNOWN_SERVER_ERROR
        raise
    return False
