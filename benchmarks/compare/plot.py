# SPDX-License-Identifier: Apache-2.0
"""
The plot: for each throughput how many times RocketMQ's ours is, as a bar with its spread::

    async send, 4 x 16   ############|----   3.1
                              ^ RocketMQ = 1, an aim is a mark

SVG, written by hand: a few rectangles need no library.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from benchmarks.compare.figures import Row, Spread

__all__ = ["draw"]

_ROW, _LEFT, _WIDTH, _TOP = 22, 430, 420, 52

# Colours that differ without red and green: one for met or no aim, one for missed.
_GOOD, _BAD, _DARK = "#3b6ea5", "#d98324", "#333333"


def draw(rows: Sequence[Row]) -> str:
    """
    Draw the plot.

    @param rows: rows in which a higher ratio is better; rows without a ratio are left out.
    """
    shown = [(each, each.ratio) for each in rows if each.ratio is not None]
    most = max([2.0, *(ratio.high for _, ratio in shown if ratio is not None)])
    scale = _WIDTH / (most * 1.05)
    bottom = _TOP + _ROW * len(shown)
    x = _LEFT + scale
    bars = "".join(
        _bar(row, ratio, _TOP + number * _ROW, scale)
        for number, (row, ratio) in enumerate(shown)
        if ratio is not None
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 60}" height="{bottom + 30}"
     font-family="sans-serif" font-size="12" fill="{_DARK}">
<rect width="100%" height="100%" fill="white"/>
<text x="8" y="18" font-size="14">Messages in a second, txrocket to Apache RocketMQ 4.9.7</text>
{bars}<line x1="{x:.1f}" y1="{_TOP - 4}" x2="{x:.1f}" y2="{bottom}" stroke="{_DARK}"
      stroke-dasharray="3 3"/>
<text x="{x:.1f}" y="{_TOP - 8}" text-anchor="middle">RocketMQ = 1</text>
<text x="8" y="{bottom + 20}">Thin lines: lowest and highest of the rounds. Thick marks: the aim;
orange where it is missed.</text>
</svg>
"""


def _bar(row: Row, ratio: Spread, y: int, scale: float) -> str:
    middle = y + _ROW // 2 - 2
    low, high = _LEFT + ratio.low * scale, _LEFT + ratio.high * scale
    drawn = f"""\
<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(row.title)}</text>
<rect x="{_LEFT}" y="{y + 2}" width="{ratio.median * scale:.1f}" height="{_ROW - 8}"
      fill="{_BAD if row.met is False else _GOOD}"/>
<line x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}" stroke="{_DARK}"/>
<text x="{max(high, low) + 6:.1f}" y="{y + 14}">{ratio.median:.2f}</text>
"""
    if row.aim is not None:
        x = _LEFT + row.aim.limit * scale
        drawn += f"""\
<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{y + _ROW - 4}" stroke="{_DARK}" stroke-width="2"/>
"""
    return drawn
