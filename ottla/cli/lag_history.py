"""The lag of a group over time: samples of `ottla group lag --watch`, the rate at which it falls, and its picture as SVG.

It has no clock: callers pass the time. A history is bounded: after `SAMPLES_MAX` samples every second one is dropped, so that
the samples of a week still cover the whole week.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from ottla.cli.output import printable
from ottla.cli.progress import Pace
from ottla.client.group_offsets import PartitionLag
from ottla.client.partitions import TopicPartition

SAMPLES_MAX = 1_000
#: The colours of lines that are easy to distinguish. Further lines are grey.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
GREY = "#999999"
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 960, 420, 90, 50, 50, 220
TICKS = 4


class LagHistory:
    """The samples of one group."""

    def __init__(self) -> None:
        self.times_ms: list[int] = []
        self.lags: dict[TopicPartition, list[int | None]] = {}
        self._paces: dict[TopicPartition, Pace] = {}

    def add(self, now_ms: int, rows: Sequence[PartitionLag]) -> None:
        """Add a sample; `now_ms` is the wall-clock time."""
        for row in rows:
            place = (row.topic, row.partition)
            self.lags.setdefault(place, [None] * len(self.times_ms))
            if row.committed is not None:
                pace = self._paces.get(place)
                if pace is None:
                    pace = self._paces[place] = Pace(now_ms)
                    pace.add(now_ms, row.committed)
                pace.add(now_ms, row.committed)
        self.times_ms.append(now_ms)
        found = {(row.topic, row.partition): row.lag for row in rows}
        for place, values in self.lags.items():
            values.append(found.get(place))
        if len(self.times_ms) > SAMPLES_MAX:
            self.times_ms = self.times_ms[::2]
            self.lags = {place: values[::2] for place, values in self.lags.items()}

    def consumed_per_s(self, place: TopicPartition) -> float | None:
        """Return how many records the group commits in a second; None with fewer than two samples."""
        pace = self._paces.get(place)
        return None if pace is None or len(self.times_ms) < 2 else round(pace.per_s, 1)

    def svg(self, group: str) -> str:
        """Return the picture: bars of the partitions for one sample, lines over time for several."""
        title = f"lag of group {group}"
        return self._lines(title) if len(self.times_ms) > 1 else self._bars(title)

    def _bars(self, title: str) -> str:
        values = {place: lags[-1] or 0 for place, lags in sorted(self.lags.items())}
        top = max(values.values(), default=0)
        rows = []
        width = (WIDTH - LEFT - 40) / max(1, len(values))
        for number, ((topic, index), lag) in enumerate(values.items()):
            x, y = LEFT + number * width, _y(lag, top)
            label = _text(f"{topic}-{index}: {lag}")
            rows.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(1.0, width * 0.8):.1f}" height="{_y(0, top) - y:.1f}" '
                f'fill="{COLOURS[0]}"><title>{label}</title></rect>'
            )
            if width > 14:
                rows.append(
                    f'<text x="{x + width * 0.4:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{index}</text>'
                )
        return _page(title, top, rows, _text(", ".join(sorted({topic for topic, _ in values}))))

    def _lines(self, title: str) -> str:
        top = max((lag or 0 for lags in self.lags.values() for lag in lags), default=0)
        begin, end = self.times_ms[0], self.times_ms[-1]
        span = max(1, end - begin)
        order = sorted(self.lags, key=lambda place: -(self.lags[place][-1] or 0))
        rows = []
        for number, place in enumerate(order):
            colour = COLOURS[number] if number < len(COLOURS) else GREY
            points = " ".join(
                f"{LEFT + (WIDTH - LEFT - RIGHT) * (at - begin) / span:.1f},{_y(lag, top):.1f}"
                for at, lag in zip(self.times_ms, self.lags[place], strict=True)
                if lag is not None
            )
            label = _text(f"{place[0]}-{place[1]}: {self.lags[place][-1]}")
            rows.append(
                f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"><title>{label}</title></polyline>'
            )
            if number < len(COLOURS):
                y = TOP + 16 * number
                rows.append(f'<text x="{WIDTH - RIGHT + 12}" y="{y}" fill="{colour}">{label}</text>')
        if len(order) > len(COLOURS):
            rows.append(
                f'<text x="{WIDTH - RIGHT + 12}" y="{TOP + 16 * len(COLOURS)}" fill="{GREY}">'
                f"and {len(order) - len(COLOURS)} more</text>"
            )
        return _page(title, top, rows, f"{_time(begin)} to {_time(end)} UTC")


def _page(title: str, top: int, rows: Sequence[str], below: str) -> str:
    grid = []
    for tick in range(TICKS + 1):
        value = top * tick / TICKS
        y = _y(value, top)
        grid.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - 20}" y2="{y:.1f}" stroke="#dddddd"/>')
        grid.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:,.0f}</text>')
    body = "\n".join((*grid, *rows))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" '
        f'role="img">\n<title>{_text(title)}</title>\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f'<text x="{LEFT}" y="26" font-size="16">{_text(title)} (records)</text>\n{body}\n'
        f'<text x="{LEFT}" y="{HEIGHT - 12}" fill="#555555">{below}</text>\n</svg>\n'
    )


def _y(value: float, top: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value / top if top else 0))


def _text(text: str) -> str:
    return escape(printable(text))


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S")
