# SPDX-License-Identifier: Apache-2.0
"""
Rules that hold for every SQL92 expression and every message.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.filters import naive
from tests.filters.test_sql92 import letter
from txrocket.errors import SubscriptionParseFailed
from txrocket.filters.sql92 import MAX_LENGTH, compileSql92, evaluator
from txrocket.filters.sql92.grammar import parse
from txrocket.filters.sql92.syntax import BadExpression

NAMES = ("a", "b", "missing", "contains")
NUMBERS = ("0", "5", "5L", "3000000000", "5.0", ".5", "1E300")
STRINGS = ("'x'", "'5'", "'true'", "''", "'it''s'")

TOKENS = (
    *(*NAMES, *NUMBERS, *STRINGS, "TRUE", "FALSE", "NULL", "AND", "OR", "NOT", "IN", "IS"),
    *("BETWEEN", "CONTAINS", "startswith", "(", ")", ",", "=", "<>", "<", ">=", "+", "-"),
    *("--", "/*", "*/", "\n", "'", '"', "!", ".", "\x00", "ſ", "北", "\udc80"),
)


def joined(*parts: str) -> st.SearchStrategy[str]:
    """
    One of several words.
    """
    return st.sampled_from(parts)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """
    Expressions that contain the given ones.
    """
    symbol = joined("=", "<>", "<", "<=", ">", ">=", "AND", "OR")
    strings = st.lists(joined(*STRINGS), min_size=1, max_size=6).map(",".join)
    negated = joined("", "NOT ")
    search = joined("CONTAINS", "STARTSWITH", "ENDSWITH")
    return st.one_of(
        st.builds("({} {} {})".format, inner, symbol, inner),
        st.builds("{} {} {}".format, inner, symbol, inner),
        st.builds("{} ({})".format, joined("NOT", "-", "+"), inner),
        st.builds("{} {}BETWEEN {} AND {}".format, inner, negated, inner, inner),
        st.builds("{} {}IN ({})".format, inner, negated, strings),
        st.builds("{} IS {}NULL".format, inner, negated),
        st.builds("{} {}{} {}".format, inner, negated, search, joined(*STRINGS)),
    )


expressions = st.recursive(joined(*NAMES, *NUMBERS, *STRINGS, "TRUE", "NULL"), grown, max_leaves=12)

values = joined("5", "-5", "5.0", "x", "true", "it's", "3000000000", "NaN", "-0.0", " 5 ", "") | (
    st.text(max_size=8)
)
messages = st.dictionaries(joined("a", "b", "contains"), values) | (
    st.dictionaries(st.text(max_size=4), values)
)


class ParseTests(SynchronousTestCase):
    """
    Any text is parsed or refused with SubscriptionParseFailed.
    """

    def check(self, text: str) -> None:
        """
        Assert that a text is an expression that evaluates to true or false, or is refused
        with a place within the text.
        """
        try:
            matches = compileSql92(text)
        except SubscriptionParseFailed as error:
            self.assertRegex(error.remark, r"^SQL92 expression(, line \d+, column \d+:| of \d+)")
            return
        for properties in ({}, {"a": "5"}, {"a": "x", "b": "5.0"}):
            self.assertIsInstance(matches(properties), bool)

    @given(st.text())
    @example("\udc80")
    @example("'" * 99)
    @example("a = " + "9" * 10_000)
    @example("a = " + "9" * 10_000 + ".0")
    @example("a = 1E" + "9" * 10_000)
    def test_anyTextIsParsedOrRefused(self, text: str) -> None:
        """
        Any text.
        """
        self.check(text)

    @given(st.lists(joined(*TOKENS)), joined("", " "))
    def test_anyTokensAreParsedOrRefused(self, tokens: list[str], between: str) -> None:
        """
        Tokens in any order.
        """
        self.check(between.join(tokens))

    @given(st.lists(joined(*TOKENS), min_size=1, max_size=3), st.integers(1, MAX_LENGTH))
    def test_longExpressionEnds(self, tokens: list[str], count: int) -> None:
        """
        A few tokens are repeated beyond the limit: parsing ends, and the stack is not
        exhausted.
        """
        self.check(" ".join(tokens * count)[: MAX_LENGTH + 1])

    @given(joined("(", "NOT ", "-", "+", "NOT (", "- (", "a = (", "a AND ("), st.integers(1, 5000))
    def test_anyNestingIsParsedOrRefused(self, opening: str, count: int) -> None:
        """
        Nested operators and parentheses.
        """
        text = opening * count + "a" + ")" * (count * opening.count("("))
        self.check(text[:MAX_LENGTH])

    @given(st.text())
    def test_placeIsWithinText(self, text: str) -> None:
        """
        The place of an error is in the text, or at its end.
        """
        try:
            _, end = parse(text)
        except BadExpression as error:
            end = error.at
        self.assertTrue(0 <= end <= len(text))


class EvaluateTests(SynchronousTestCase):
    """
    Mostly well-formed expressions.
    """

    @given(expressions, st.lists(messages, min_size=1, max_size=5))
    def test_compiledEqualsNaive(self, text: str, sets: list[dict[str, str]]) -> None:
        """
        A compiled expression has the result of the naive evaluator.
        """
        try:
            evaluate = evaluator(text)
        except SubscriptionParseFailed:
            return
        tree, _ = parse(text)
        for properties in sets:
            self.assertEqual(
                letter(evaluate, properties),
                letter(lambda each: naive.evaluate(tree, each).value, properties),
            )

    @given(expressions, st.lists(messages, min_size=1, max_size=5))
    def test_matchingNeverRaises(self, text: str, sets: list[dict[str, str]]) -> None:
        """
        Matching never raises.
        """
        try:
            matches = compileSql92(text)
        except SubscriptionParseFailed:
            return
        for properties in sets:
            self.assertIsInstance(matches(properties), bool)
