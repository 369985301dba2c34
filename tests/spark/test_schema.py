# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{pyspark_rocketmq.columns.schema}.
"""

from __future__ import annotations

from pyspark_rocketmq.columns.schema import COLUMNS, FURTHER, defaultSchema, projection
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import ConfigError


class SchemaTests(SynchronousTestCase):
    """
    Which columns there are.
    """

    def test_defaultSchemaMayOmitProperties(self) -> None:
        """
        Without a schema there are these, with the properties or without.
        """
        self.assertEqual(
            defaultSchema(),
            "topic string, brokerName string, queueId int, queueOffset bigint, msgId string,"
            " tags string, keys string, properties map<string,string>, bornTimestamp timestamp,"
            " storeTimestamp timestamp, bornHost string, reconsumeTimes int, body binary",
        )
        self.assertNotIn("map", defaultSchema(properties=False))

    def test_projectionIgnoresCaseAndOrder(self) -> None:
        """
        A schema has any of them, in any order, in letters of any case, and further ones.
        """
        self.assertEqual(
            projection([("BODY", "binary"), ("queueid", "int"), ("offsetMsgId", "string")]),
            ("body", "queueId", "offsetMsgId"),
        )
        every = {**COLUMNS, **FURTHER}
        self.assertEqual(projection(every.items()), tuple(every))

    def test_allProblemsAreListed(self) -> None:
        """
        All that is wrong with a schema is told.
        """
        error = self.assertRaises(
            ConfigError,
            projection,
            [("value", "binary"), ("body", "string"), ("topic", "string"), ("Topic", "string")],
        )
        first, second, third = error.problems
        self.assertIn("column value does not exist; there are topic, ", first)
        self.assertEqual(second, "the column body is of type binary, not string")
        self.assertEqual(third, "the column topic is there twice")
        self.assertRaises(ConfigError, projection, [])
