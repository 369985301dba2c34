# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.filters.sql92}, L{txrocket.filters.sql92.grammar} and
L{txrocket.filters.sql92.syntax}.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.filters import naive
from txrocket.errors import SubscriptionParseFailed
from txrocket.filters.sql92 import (
    MAX_DEPTH,
    MAX_LENGTH,
    SQL92,
    compileSql92,
    evaluator,
    sql92Filter,
)
from txrocket.filters.sql92.grammar import MAX_WORDS, parse
from txrocket.message import MessageExt
from txrocket.model import SubscriptionData
from txrocket.protocol.record.fields import encodeProperties

SEARCH = "CONTAINS, STARTSWITH or ENDSWITH"
FIXTURE = Path(__file__).parents[1] / "fixtures" / "sql92.jsonl"


def letter(evaluate: Any, properties: dict[str, str]) -> str:
    """
    The result of an evaluation as a letter; see C{sql92.rst}.
    """
    try:
        return {True: "T", False: "F", None: "N"}[evaluate(properties)]
    except ValueError:
        return "E"


class TableTests(SynchronousTestCase):
    """
    The results of RocketMQ's filter module.
    """

    def setUp(self) -> None:
        first, *lines = FIXTURE.read_text("utf-8").splitlines()
        self.sets = json.loads(first)["properties"]
        self.rows = [json.loads(line) for line in lines]

    def test_resultsAreRocketMQs(self) -> None:
        """
        Expressions that RocketMQ refuses are refused; others have RocketMQ's result for
        every set of properties: true, false, null or an error.
        """
        self.assertGreater(len(self.rows), 1300)
        for row in self.rows:
            text, answers = row["expression"], row[row["as"]]
            if answers is None:
                self.assertRaises(SubscriptionParseFailed, evaluator, text)
                continue
            evaluate = evaluator(text)
            self.assertEqual("".join(letter(evaluate, each) for each in self.sets), answers, text)

    def test_onlyTrueMatches(self) -> None:
        """
        A message matches only if its properties make the expression true.
        """
        for row in self.rows:
            if (answers := row[row["as"]]) is not None:
                matches = compileSql92(row["expression"])
                self.assertEqual(
                    [matches(each) for each in self.sets], [each == "T" for each in answers]
                )

    def test_naiveEvaluatorIsRocketMQs(self) -> None:
        """
        The naive evaluator, which the property tests use, has RocketMQ's results too.
        """
        for row in self.rows:
            if (answers := row[row["as"]]) is not None:
                tree, _ = parse(row["expression"])
                found = "".join(
                    letter(lambda each: naive.evaluate(tree, each).value, each)  # noqa: B023
                    for each in self.sets
                )
                self.assertEqual(found, answers, row["expression"])

    def test_versionsDifferOnlyInKeywords(self) -> None:
        """
        The two versions differ only in the keywords of the newer one: expressions without
        these have the same results.
        """
        for row in self.rows:
            if row["4.9.7"] != row["5.3.3"]:
                self.assertRegex(row["expression"].upper(), "CONTAINS|STARTSWITH|ENDSWITH")


class RefusedTests(SynchronousTestCase):
    """
    Errors of expressions that cannot be parsed.
    """

    def assertRefused(self, text: str, told: str) -> None:
        """
        Assert that an expression is refused with this text.
        """
        error = self.assertRaises(SubscriptionParseFailed, compileSql92, text)
        self.assertEqual(error.remark, f"SQL92 expression, {told}")

    def test_syntaxErrorNamesPlace(self) -> None:
        """
        A syntax error names line and column, and what was expected.
        """
        for text, told in (
            ("a >", "line 1, column 4: the end, where a property or a value was expected"),
            ("a > )", "line 1, column 5: ), where a property or a value was expected"),
            (
                "a > 5 AND\n  b =",
                "line 2, column 6: the end, where a property or a value was expected",
            ),
            ("(a > 5", "line 1, column 7: the end, where ) was expected"),
            ("(a > 5 b", "line 1, column 8: b, where ) was expected"),
            ("a BETWEEN 1 OR 5", "line 1, column 13: OR, where AND was expected"),
            ("a IN (5)", "line 1, column 7: 5, where a string in single quotes was expected"),
            ("a IN 'x'", "line 1, column 6: 'x', where ( was expected"),
            ("a IN ('x' 'y')", "line 1, column 11: 'y', where ) or , was expected"),
            ("a IS b", "line 1, column 6: b, where NOT or NULL was expected"),
            ("a NOT b", f"line 1, column 7: b, where BETWEEN or {SEARCH} or IN was expected"),
            ("a CONTAINS b", "line 1, column 12: b, where a string in single quotes was expected"),
            ("a = 'x", "line 1, column 5: an unterminated string"),
            ('a = "x"', "line 1, column 5: unexpected '\"'"),
            ("a\r\n\n = !", "line 3, column 4: unexpected '!'"),
            ("", "line 1, column 1: the end, where a property or a value was expected"),
            (
                f"a > '{'x' * 50}",
                "line 1, column 5: an unterminated string",
            ),
            (
                f"a IN '{'x' * 50}'",
                f"line 1, column 6: '{'x' * 39}..., where ( was expected",
            ),
        ):
            self.assertRefused(text, told)

    def test_typeErrorNamesPlace(self) -> None:
        """
        An operand of a wrong type is an error that names line and column.
        """
        for text, told in (
            ("5", "line 1, column 1: this is neither true nor false"),
            ("a AND 'x'", "line 1, column 7: this is neither true nor false"),
            ("NOT -a", "line 1, column 5: this is neither true nor false"),
            ("a = NULL", "line 1, column 5: NULL is equal to nothing; write IS NULL"),
            ("NULL <> a", "line 1, column 1: NULL is equal to nothing; write IS NULL"),
            ("TRUE = 5", "line 1, column 1: TRUE and FALSE cannot be compared with an int"),
            ("a > 'x'", "line 1, column 5: a string is neither less nor greater; numbers are"),
            ("NULL < a", "line 1, column 1: null is neither less nor greater; numbers are"),
            (
                "a < (b = 1)",
                "line 1, column 6: true or false is neither less nor greater; numbers are",
            ),
            ("a BETWEEN 5 AND 1", "line 1, column 11: BETWEEN 5 AND 1 is the wrong way round"),
            ("5 IN ('x')", "line 1, column 1: only a property can be IN a list"),
            (
                "a > 9223372036854775808",
                "line 1, column 5: 9223372036854775808 is greater than 9223372036854775807",
            ),
            ("a > 1E999", "line 1, column 5: 1E999 is greater than any double"),
            ("a > 0.0", "line 1, column 5: 0.0 is less than the least double; write 0"),
            (f"a > {'9' * 9999}", f"line 1, column 5: {'9' * 40}... is greater than {2**63 - 1}"),
        ):
            self.assertRefused(text, told)

    def test_longExpressionIsRefused(self) -> None:
        """
        The longest expression is accepted, and one character more is refused.
        """
        longest = "a = '" + "x" * (MAX_LENGTH - 6) + "'"
        self.assertTrue(compileSql92(longest)({"a": "x" * (MAX_LENGTH - 6)}))
        error = self.assertRaises(SubscriptionParseFailed, compileSql92, f"{longest} ")
        self.assertEqual(
            error.remark, f"SQL92 expression of {MAX_LENGTH + 1} characters: the limit is 16384"
        )

    def test_deepNestingIsRefused(self) -> None:
        """
        Operators of any kind may be nested up to the limit, and not deeper.
        """
        for operators, column in (
            (lambda count: "NOT " * (count - 1) + "a", 4 * MAX_DEPTH + 1),
            (lambda count: "NOT (" * (count - 1) + "a" + ")" * (count - 1), 5 * MAX_DEPTH + 1),
            (lambda count: "a" + " = b" * count, 1),
            (lambda count: "b = " + "-" * (count - 1) + "a", MAX_DEPTH + 4),
        ):
            compileSql92(operators(MAX_DEPTH))({"a": "1"})
            self.assertRefused(
                operators(MAX_DEPTH + 1),
                f"line 1, column {column}: operators are nested more than {MAX_DEPTH} deep",
            )

    def test_chainsAreNotNested(self) -> None:
        """
        Chains of AND and OR, lists and parentheses do not count as nesting.
        """
        for text in (
            " OR ".join(["a = 1"] * 250),
            " AND ".join(["a > 0"] * 250),
            "(" * 498 + "a = 1" + ")" * 498,
            "+" * 996 + "a IS NOT NULL",
            f"a IN ({','.join(str([each])[1:-1] for each in map(str, range(498)))})",
        ):
            self.assertTrue(compileSql92(text)({"a": "1"}), text[:20])

    def test_manyWordsAreRefused(self) -> None:
        """
        An expression of more words than can be compiled in 50 ms is refused.
        """
        text = " OR ".join(["a = 1"] * 251)
        error = self.assertRaises(SubscriptionParseFailed, compileSql92, text)
        self.assertIn(f"more than {MAX_WORDS} names, values and operators", str(error))

    def test_adversarialTextEnds(self) -> None:
        """
        Text that is slow for naive lexers ends soon: minuses that may each begin a
        comment, quotes, and unterminated comments.
        """
        for text in ("-" * MAX_LENGTH, "'" * MAX_LENGTH, "/*" * 8000, "--\n" * 5000, "(" * 16000):
            self.assertRaises(SubscriptionParseFailed, compileSql92, text)


class RestTests(SynchronousTestCase):
    """
    Text after a complete expression.
    """

    def test_restIsIgnoredAndLogged(self) -> None:
        """
        It is ignored, as in RocketMQ, and the broker logs it.
        """
        with capturedLogs() as events:
            self.assertFalse(compileSql92("a LIKE 'x%'")({"a": "xy"}))
        [event] = events
        self.assertEqual(
            (event["log_level"], event["read"], event["rest"]), (LogLevel.warn, "a", "LIKE 'x%'")
        )

    def test_blanksAndCommentsAreNotLogged(self) -> None:
        """
        Blanks and comments after the expression are not logged.
        """
        with capturedLogs() as events:
            compileSql92("a = 1 -- one\n /* and */ ")
        self.assertEqual(events, [])


class ImportTests(SynchronousTestCase):
    """
    The cost of SQL92 for a broker that does not use it.
    """

    def test_serversStartWithoutParser(self) -> None:
        """
        Servers start without importing the parser.
        """
        program = "import sys, txrocket.services; sys.exit('lark' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", program]).returncode, 0)


class FilterTests(SynchronousTestCase):
    """
    L{sql92Filter}.
    """

    def test_filterUsesPropertiesNotHash(self) -> None:
        """
        A message is filtered by all its properties, and not by its tag's hash.
        """
        made = sql92Filter(
            SubscriptionData("T", "price > 5 AND TAGS = 'sale'", expressionType=SQL92)
        )
        self.assertIsNone(made.matches)
        assert made.accepts is not None
        for properties, wanted in (
            ({"price": "6", "TAGS": "sale"}, True),
            ({"price": "5", "TAGS": "sale"}, False),
            ({"price": "much", "TAGS": "sale"}, False),
            ({"price": "6"}, False),
        ):
            message = MessageExt(
                "T", b"", 0, encodeProperties(properties), 0, 0, 0, 0, 0, b"", 0, b"", 0, 0, 0, 0
            )
            self.assertIs(made.accepts(message), wanted)

    def test_badExpressionIsRefused(self) -> None:
        """
        An expression that cannot be parsed has no filter.
        """
        self.assertRaises(
            SubscriptionParseFailed,
            sql92Filter,
            SubscriptionData("T", "a >", expressionType=SQL92),
        )
