# SPDX-License-Identifier: Apache-2.0
"""
What holds for every SQL92 expression and every message.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.filters import naive
from tests.filters.test_sql92 import letter
from txrocket.errors import SubscriptionParseFailed
from txrocket.filters.sql92 import MAX_LENGTH, compileSql92, evaluator
from txrocket.filters.sql92grammar import parse
from txrocket.filters.sql92syntax import BadExpression

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
    What can be made of expressions.
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
    Whatever a subscriber sends.
    """

    def check(self, text: str) -> None:
        """
        It is an expression, and then evaluates to true or false; or it is refused with
        a place that is in it.
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
    def test_text(self, text: str) -> None:
        """
        Any text.
        """
        self.check(text)

    @given(st.lists(joined(*TOKENS)), joined("", " "))
    def test_tokens(self, tokens: list[str], between: str) -> None:
        """
        Tokens in any order.
        """
        self.check(between.join(tokens))

    @given(st.lists(joined(*TOKENS), min_size=1, max_size=3), st.integers(1, MAX_LENGTH))
    def test_long(self, tokens: list[str], count: int) -> None:
        """
        A few tokens again and again, up to more than there may be: it comes to an end,
        and the stack is not exhausted.
        """
        self.check(" ".join(tokens * count)[: MAX_LENGTH + 1])

    @given(joined("(", "NOT ", "-", "+", "NOT (", "- (", "a = (", "a AND ("), st.integers(1, 5000))
    def test_nested(self, opening: str, count: int) -> None:
        """
        Operators and parentheses in one another.
        """
        text = opening * count + "a" + ")" * (count * opening.count("("))
        self.check(text[:MAX_LENGTH])

    @given(st.text())
    def test_place(self, text: str) -> None:
        """
        What is wrong is in the text, or at its end.
        """
        try:
            _, end = parse(text)
        except BadExpression as error:
            end = error.at
        self.assertTrue(0 <= end <= len(text))


class EvaluateTests(SynchronousTestCase):
    """
    Expressions that are well formed, for the most part.
    """

    @given(expressions, st.lists(messages, min_size=1, max_size=5))
    def test_naive(self, text: str, sets: list[dict[str, str]]) -> None:
        """
        A compiled expression comes to what walking its tree comes to.
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
    def test_raisesNothing(self, text: str, sets: list[dict[str, str]]) -> None:
        """
        Whether a message matches can always be told.
        """
        try:
            matches = compileSql92(text)
        except SubscriptionParseFailed:
            return
        for properties in sets:
            self.assertIsInstance(matches(properties), bool)
