# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.filters.bloom}.
"""

from __future__ import annotations

import json
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from txrocket.filters.bloom import Bloom, murmur

FIXTURE = Path(__file__).parents[1] / "fixtures" / "filters.json"


class BloomTests(SynchronousTestCase):
    """
    L{Bloom}.
    """

    def setUp(self) -> None:
        self.rows = json.loads(FIXTURE.read_text("utf-8"))["blooms"]

    def test_parametersAreRocketMQs(self) -> None:
        """
        A filter has as many bits, and sets as many, as RocketMQ's.
        """
        self.assertEqual(len(self.rows), 99 * 4)
        for row in self.rows:
            bloom = Bloom(row["errorRate"], row["expected"])
            self.assertEqual((bloom.hashes, bloom.bits), (row["hashes"], row["bits"]))

    def test_positionsAreRocketMQs(self) -> None:
        """
        An entry has RocketMQ's bit positions, for texts of every length that is hashed
        differently.
        """
        compared = 0
        for row in self.rows:
            bloom = Bloom(row["errorRate"], row["expected"])
            for text, positions in row.get("positions", {}).items():
                self.assertEqual(bloom.positions(text), tuple(positions), text)
                compared += 1
        self.assertEqual(compared, 8 * 36)

    def test_hashIsMurmur3(self) -> None:
        """
        The hash is that of its reference implementation.
        """
        for text, hashed in (
            (b"", 0),
            (b"hello", 0xCBD8A7B341BD9B02),
            (b"The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C),
        ):
            self.assertEqual(murmur(text), hashed)
