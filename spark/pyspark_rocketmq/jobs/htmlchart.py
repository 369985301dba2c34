# SPDX-License-Identifier: Apache-2.0
"""
Charts of lines over time as one HTML page with inline SVG, which any browser shows.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import attrs

__all__ = ["Chart", "page", "ticks"]

_WIDTH: Final = 900
_HEIGHT: Final = 270
_LEFT: Final = 70
_RIGHT: Final = 15
_TOP: Final = 28
_BOTTOM: Final = 30

# Colours that colour-blind readers can distinguish (Okabe and Ito).
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")

# A chart with more lines is not readable; the lines with the greatest sums are drawn.
_LINES: Final = 7

_STYLE: Final = (
    "body{font:14px sans-serif;margin:2em auto;max-width:960px;color:#222;background:#fff}"
    "svg{width:100%;height:auto}text{font-size:11px;fill:#555}"
    ".g{stroke:#ddd}.l{fill:none;stroke-width:1.6}.k{margin-right:1.2em;white-space:nowrap}"
)


@attrs.frozen
class Chart:
    """
    A chart of lines over one span of time.

    @ivar unit: the unit of the numbers.
    @ivar lines: by name, points: a time in seconds since 1970, and a number.
    """

    title: str
    unit: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


def page(title: str, charts: Iterable[Chart]) -> str:
    """
    A page with some charts.
    """
    bodies = "\n".join(map(_chart, charts))
    head = html.escape(title)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{head}</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>{head}</h1>\n{bodies}\n</body></html>\n"
    )


def ticks(high: float, most: int = 5) -> list[float]:
    """
    Round numbers from 0 up to a number or a little beyond it.

    @param most: the most steps.
    """
    if high <= 0:
        return [0.0, 1.0]
    rough = high / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough * (1 - 1e-9))
    return [step * number for number in range(math.ceil(high / step - 1e-9) + 1)]


def _chart(chart: Chart) -> str:
    heading = f"<h2>{html.escape(chart.title)}</h2>"
    lines = sorted(chart.lines.items(), key=lambda each: -sum(y for _, y in each[1]))
    points = [point for _, line in lines for point in line]
    if not points:
        return f"{heading}<p>There is nothing to show.</p>"
    shown, left = lines[:_LINES], len(lines) - _LINES
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    marks = ticks(max(y for _, line in shown for _, y in line))
    drawn = [_axis(marks, first, last, chart.unit)]
    keys = []
    for (name, line), colour in zip(shown, _COLOURS, strict=False):
        path = " ".join(f"{_x(x, first, last):.1f},{_y(y, marks[-1]):.1f}" for x, y in sorted(line))
        dots = "".join(
            f'<circle cx="{_x(x, first, last):.1f}" cy="{_y(y, marks[-1]):.1f}" r="2"'
            f' fill="{colour}"><title>{html.escape(name)}: {_number(y)}</title></circle>'
            for x, y in line
        )
        drawn.append(f'<polyline class="l" stroke="{colour}" points="{path}"/>{dots}')
        keys.append(f'<span class="k" style="color:{colour}">&#9644; {html.escape(name)}</span>')
    if left > 0:
        keys.append(f"<span>and {left} more that are not drawn</span>")
    view = f"0 0 {_WIDTH} {_HEIGHT}"
    return f'{heading}<svg viewBox="{view}">{"".join(drawn)}</svg><p>{"".join(keys)}</p>'


def _x(value: float, first: float, last: float) -> float:
    room = _WIDTH - _LEFT - _RIGHT
    return _LEFT + (room * (value - first) / (last - first) if last > first else room / 2)


def _y(value: float, high: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / high


def _axis(marks: Sequence[float], first: float, last: float, unit: str) -> str:
    parts = []
    for mark in marks:
        y = _y(mark, marks[-1])
        parts.append(
            f'<line class="g" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(mark)}</text>'
        )
    parts.append(f'<text x="4" y="{_TOP - 16}">{html.escape(unit)}</text>')
    steps = 4 if last > first else 0
    for step in range(steps + 1):
        value = first + (last - first) * step / (steps or 1)
        anchor = "middle" if 0 < step < steps or not steps else "end" if step else "start"
        parts.append(
            f'<text x="{_x(value, first, last):.1f}" y="{_HEIGHT - 10}" text-anchor="{anchor}">'
            f"{_moment(value, last - first)}</text>"
        )
    return "".join(parts)


def _moment(seconds: float, span: float) -> str:
    when = datetime.fromtimestamp(seconds, UTC)
    return when.strftime("%Y-%m-%d %H:%M" if span > 86_400 else "%H:%M:%S")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}".rstrip("0").rstrip(".")
