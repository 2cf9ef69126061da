"""Charts of the pipeline's results, as PNG and as one HTML page without other files.

It reads tables, topics and progress, and starts no Spark.
"""

from __future__ import annotations

import base64
import html
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ottla.pipeline import broker_table, freshness, read_topic, tables
from ottla.pipeline.config import Config
from ottla.pipeline.errors import PipelineError

TOP_PAGES = 12
SIZE_INCHES = (9, 3.6)
COLOURS = ("#2f6f9f", "#c65d3b", "#4c8c4a", "#8a5ea8", "#b08d2f")
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Ottla pipeline</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}}
h1{{font-weight:600}}figure{{margin:2rem 0}}img{{width:100%;height:auto}}figcaption{{color:#555}}
table{{border-collapse:collapse}}td,th{{padding:.2rem 1rem .2rem 0;text-align:left;font-variant-numeric:tabular-nums}}</style>
<h1>Ottla pipeline</h1><p>{summary}</p><table>{rows}</table>
{figures}
</html>
"""


def write(config: Config) -> str:
    """Write the charts and the page; return the page's path."""
    import matplotlib

    matplotlib.use("Agg")  # no display is needed
    import matplotlib.pyplot as plt

    if not Path(config.path()).is_dir():
        raise PipelineError(
            f"there are no results in {config.path()}", remedy="run `ottla-pipeline run all` first, or give --output"
        )
    folder = Path(config.path("report"))
    folder.mkdir(exist_ok=True)
    found = Found(config)
    figures = []
    for name, caption, draw in CHARTS:
        figure, axes = plt.subplots(figsize=SIZE_INCHES, layout="constrained")
        draw_chart(axes, found, caption, draw)
        figure.savefig(folder / f"{name}.png", dpi=120)
        plt.close(figure)
        picture = base64.b64encode((folder / f"{name}.png").read_bytes()).decode()
        figures.append(f'<figure><img alt="{html.escape(caption)}" src="data:image/png;base64,{picture}"></figure>')
    draw_overview(plt, found, folder / "overview.png")
    page = folder / "index.html"
    rows = "".join(f"<tr><th>{html.escape(name)}</th><td>{count:,}</td></tr>" for name, count in found.counts().items())
    summary = (
        f"{html.escape(config.kafka.bootstrap_servers)}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; "
        f"topics by format(&quot;{html.escape(config.source.connector)}&quot;)"
    )
    page.write_text(PAGE.format(summary=summary, rows=rows, figures="\n".join(figures)))
    return str(page)


def draw_chart(axes: Any, found: Found, caption: str, draw: Draw) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    draw(axes, found)
    axes.set_title(caption, loc="left")


def draw_overview(plt: Any, found: Found, path: Path) -> None:
    """Draw the first four charts as one picture, for a README or a chat."""
    figure, grid = plt.subplots(2, 2, figsize=(SIZE_INCHES[0] * 1.5, SIZE_INCHES[1] * 2), layout="constrained")
    for axes, (_, caption, draw) in zip(grid.flat, CHARTS, strict=False):
        draw_chart(axes, found, caption, draw)
    figure.savefig(path, dpi=80)
    plt.close(figure)


class Found:
    """The results, which are read once."""

    def __init__(self, config: Config) -> None:
        self.window_ms = config.pipeline.window_seconds * 1000
        self.windows = tables.rows(tables.gold(config, "windows"))
        self.sessions = tables.rows(tables.gold(config, "sessions"))
        self.reasons = Counter(dict(read_topic.dead_letters(config)).values())
        is_table = broker_table.is_read(config)
        self.bronze = len(broker_table.places(config)) if is_table else count(tables.sink(config, "bronze", ["offset"]))
        self.freshness = {
            "bronze, by Spark": freshness.of_stage(config),
            "the brokers' table": freshness.of_table(config),
        }
        self.silver = count(tables.sink(config, "silver", ["event_id"]))
        self.progress = progress(config)

    def counts(self) -> dict[str, int]:
        return {
            "bronze rows": self.bronze,
            "silver events": self.silver,
            "dead letters": self.reasons.total(),
            "page views in windows": sum(row["views"] for row in self.windows),
            "windows of a page": len(self.windows),
            "sessions": len(self.sessions),
        }


def count(table: Any) -> int:
    return table.num_rows if table is not None else 0


def progress(config: Config) -> list[dict[str, Any]]:
    path = Path(config.path("progress.jsonl"))
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def draw_windows(axes: Any, found: Found) -> None:
    views: Counter[int] = Counter()
    for row in found.windows:
        views[row["window_ms"]] += row["views"]
    # Windows without a view have no rows. After the last window there is no row either.
    starts = range(min(views), max(views) + 2 * found.window_ms, found.window_ms) if views else []
    axes.step([time_of(start) for start in starts], [views[start] for start in starts], where="post", color=COLOURS[0])
    axes.set_ylim(bottom=0)
    axes.set_ylabel("views")
    clock(axes)


def draw_pages(axes: Any, found: Found) -> None:
    views: Counter[str] = Counter()
    for row in found.windows:
        views[row["page"]] += row["views"]
    draw_bars(axes, views.most_common(TOP_PAGES), COLOURS[0])


def draw_reasons(axes: Any, found: Found) -> None:
    draw_bars(axes, found.reasons.most_common(), COLOURS[1])


def draw_bars(axes: Any, bars: list[tuple[str, int]], colour: str) -> None:
    drawn = axes.barh([name for name, _ in reversed(bars)], [number for _, number in reversed(bars)], color=colour)
    axes.bar_label(drawn, fmt="{:,.0f}", padding=3)
    if not bars:
        nothing(axes)


def draw_lag(axes: Any, found: Found) -> None:
    batches = [each for each in found.progress if "lag_offsets_before" in each]
    axes.plot(
        [datetime.fromisoformat(each["time"]) for each in batches],
        [each["lag_offsets_before"] for each in batches],
        ".-",
        color=COLOURS[2],
    )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("offsets behind")
    clock(axes)
    if not batches:
        nothing(axes)


def draw_batches(axes: Any, found: Found) -> None:
    by_query: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in found.progress:
        by_query[each["query"]].append(each)
    for colour, (query, batches) in zip(COLOURS, sorted(by_query.items()), strict=False):
        axes.plot(
            [datetime.fromisoformat(each["time"]) for each in batches],
            [each["batch_ms"] / 1000 for each in batches],
            ".-",
            color=colour,
            label=query,
        )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("seconds")
    clock(axes)
    if by_query:
        axes.legend(frameon=False, ncols=len(by_query))


def draw_freshness(axes: Any, found: Found) -> None:
    for colour, (way, points) in zip(COLOURS, found.freshness.items(), strict=False):
        if points:
            times = [datetime.fromtimestamp(point.seen_s, UTC) for point in points]
            axes.plot(times, [point.age_s for point in points], ".", color=colour, label=way)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("seconds")
    clock(axes)
    if any(found.freshness.values()):
        axes.legend(frameon=False, ncols=len(found.freshness))
    else:
        nothing(axes)


Draw = Callable[[Any, Found], None]
CHARTS: tuple[tuple[str, str, Draw], ...] = (
    ("views", "Page views by window", draw_windows),
    ("pages", "Top pages", draw_pages),
    ("dead-letters", "Dead letters by reason", draw_reasons),
    ("lag", "Offsets that bronze was behind when a batch began", draw_lag),
    ("batches", "Time of a micro-batch", draw_batches),
    ("freshness", "Age of the oldest record of a file when bronze has it", draw_freshness),
)


def time_of(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)


def clock(axes: Any) -> None:
    first, last = axes.get_xlim()
    if last - first < 1 / 86_400:
        return  # there is only one moment, so nothing to label in between
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=8)  # matplotlib's 5 has no step for 4 minutes
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def nothing(axes: Any) -> None:
    axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", color="#777")
