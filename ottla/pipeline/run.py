"""The run of the stages: each is started when there is something to read for it.

It ends by a signal, or with trigger "once" when all is read.

A stage that reads files waits for the first batch of the stage before it. Before that the folder has no log of finished
files, and Spark would take what is still being written for finished.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ottla.pipeline import broker_table, progress, read_topic, session, topics
from ottla.pipeline import config as configuration
from ottla.pipeline.config import Config
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.explain import explained
from ottla.pipeline.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

POLL_SECONDS = 0.5
#: When the user ends the stages, they wait this long for the micro-batches. A second signal ends them at once.
BATCH_SECONDS_MAX = 30
EVENTS_WAIT_SECONDS_MAX = 5


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C or SIGTERM sets, to be checked between two steps. A second signal ends the process at once.

    A Spark session has to exist before: it sets its own handler, with which Ctrl-C interrupts micro-batches.
    """
    stop = threading.Event()

    def on_signal(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop.set()

    is_ours = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM) if is_ours}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(config: Config, stages: Sequence[Stage]) -> None:
    """Run the queries until a signal stops them; raise the first failure of a query."""
    topics.ensure(config)
    spark = session.start(config)
    watcher = progress.listener(config.path(), sys.stdout)
    spark.streams.addListener(watcher)
    queries: list[StreamingQuery] = []
    run_stages = run_once if config.pipeline.trigger == "once" else run_on
    with stopped_by_signals() as stop:
        try:
            run_stages(spark, config, stages, queries, stop)
        except PipelineError:
            raise
        except Exception as error:
            raise explained(error, config) from None
        finally:
            for query in queries:
                end(query)
            await_events(watcher, queries)
            spark.streams.removeListener(watcher)


def run_once(
    spark: SparkSession, config: Config, stages: Sequence[Stage], queries: list[StreamingQuery], stop: threading.Event
) -> None:
    if broker_table.is_read(config):
        broker_table.await_all(config, read_topic.ends(config, config.kafka.events), stop)
    for stage in stages:
        if not stage.is_ready(config):
            print(f"{stage.name}: nothing to read, {stage.reads} is empty", file=sys.stderr)
            return
        started = stage.start(spark, config)
        queries += started
        for query in started:
            while not query.awaitTermination(POLL_SECONDS):
                if stop.is_set():
                    return


def run_on(
    spark: SparkSession, config: Config, stages: Sequence[Stage], queries: list[StreamingQuery], stop: threading.Event
) -> None:
    waiting = list(stages)
    while not stop.wait(POLL_SECONDS):
        for stage in [stage for stage in waiting if stage.is_ready(config)]:
            queries += stage.start(spark, config)
            waiting.remove(stage)
        for query in queries:
            if not query.isActive:
                raise query.exception() or PipelineError(f"the query {query.name} ended", remedy="start it again")


def end(query: StreamingQuery) -> None:
    """Stop between micro-batches if possible: an interrupted batch is only repeated, but Spark prints long errors."""
    deadline = time.monotonic() + BATCH_SECONDS_MAX
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS / 10)
    query.stop()


def await_events(watcher: Any, queries: list[StreamingQuery]) -> None:
    """Wait for the progress lines of the last micro-batches."""
    deadline = time.monotonic() + EVENTS_WAIT_SECONDS_MAX
    while not {str(query.runId) for query in queries} <= watcher.ended and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS / 10)


def submitted(stage: Stage) -> None:
    """The entry point of spark-submit for a stage's file."""
    parser = argparse.ArgumentParser(description=f"the {stage.name} stage; submitted to Spark")
    parser.add_argument("--config", **configuration.FILES)
    parser.add_argument("--set", metavar="SECTION.NAME=VALUE", action="append", default=[], dest="overrides")
    args = parser.parse_args()
    try:
        config, properties = configuration.files(args.config, os.environ)
        run(configuration.load(config, tuple(args.overrides), properties), [stage])
    except PipelineError as error:
        sys.exit(f"ottla-pipeline: {error}")
    finally:
        session.stop()
