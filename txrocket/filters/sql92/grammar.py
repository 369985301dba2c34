# SPDX-License-Identifier: Apache-2.0
"""
The parser of SQL92 expressions, with the tokens and the precedence of RocketMQ's
C{SelectorParser}::

    OR                                          lowest
    AND
    =  <>  IS NULL  IS NOT NULL                 one row is evaluated from left to right
    <  <=  >  >=  BETWEEN  IN  CONTAINS ...
    +  -  NOT                                   unary: NOT a = 1 is (NOT a) = 1
    literals, names, parentheses                highest

Two of its peculiarities are kept, because expressions in use rely on them:

- It ignores the text after a complete expression: C{a = 1 b = 2} is C{a = 1}.
- A comment that begins with C{--} ends with its line; without an end of line it is two
  minuses.

L{lark} parses by tables (LALR) without recursion, so deep nesting cannot exhaust the
stack.  Importing it and building the tables is slow.  Therefore a broker imports this
module at its start, and only if it evaluates expressions; see
L{txrocket.broker.plugins.loadSQL92}.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lark import Lark, Token, Transformer, UnexpectedToken, v_args
from lark.lexer import Lexer
from lark.parsers.lalr_interactive_parser import InteractiveParser

from txrocket.filters.sql92.syntax import (
    AllOf,
    AnyOf,
    BadExpression,
    Boolean,
    Constant,
    Equal,
    Expression,
    Kind,
    Negative,
    Not,
    Ordered,
    Property,
    Search,
    Within,
    asBoolean,
    between,
    decimalNumber,
    equal,
    floatingNumber,
    notBetween,
    ordered,
    shortened,
    within,
)

__all__ = ["MAX_WORDS", "parse"]

#: The maximum number of names, values and operators in an expression, because the broker
#: compiles it in one turn.
MAX_WORDS: Final = 1000

# The keywords of RocketMQ 5 (SEARCH) are also accepted as names, because in 4.9.7 they
# are names.
_GRAMMAR: Final = r"""
start: ortest
?ortest: andtest (_OR andtest)*
?andtest: equality (_AND equality)*
?equality: comparison
    | equality _EQUAL comparison              -> equality
    | equality _UNEQUAL comparison            -> inequality
    | equality _IS NULL                       -> isnull
    | equality _IS NOT NULL                   -> isnotnull
?comparison: unary
    | comparison ORDER unary                  -> order
    | comparison _BETWEEN unary _AND unary    -> between
    | comparison NOT _BETWEEN unary _AND unary -> notbetween
    | comparison _IN _strings                 -> within
    | comparison NOT _IN _strings             -> notwithin
    | comparison SEARCH STRING                -> search
    | comparison NOT SEARCH STRING            -> notsearch
?unary: _PLUS unary
    | MINUS unary                             -> negative
    | NOT unary                               -> negation
    | primary
?primary: STRING                              -> string
    | DECIMAL                                 -> decimal
    | FLOATING                                -> floating
    | TRUE                                    -> true
    | FALSE                                   -> false
    | NULL                                    -> null
    | (NAME | SEARCH)                         -> name
    | _LEFT ortest _RIGHT
_strings: _LEFT STRING (_COMMA STRING)* _RIGHT

%declare NOT _AND _OR _BETWEEN _IN _IS TRUE FALSE NULL SEARCH NAME
%declare STRING DECIMAL FLOATING _EQUAL _UNEQUAL ORDER _PLUS MINUS _LEFT _RIGHT _COMMA
"""

# Both cases are listed, because re.IGNORECASE also matches U+017F as s and U+0131 as i.
_TOKEN: Final = re.compile(
    r"""
      (?P<SPACE> [ \t\n\r\f]+ | /\*[^*]*\*+(?:[^*/][^*]*\*+)*/ )
    | (?P<NAME> [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<FLOATING> (?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[Ee][+-]?[0-9]+)? | [0-9]+[Ee][+-]?[0-9]+ )
    | (?P<DECIMAL> 0 | [1-9][0-9]*[lL]? )
    | (?P<STRING> '[^']*(?:''[^']*)*' )
    | (?P<_UNEQUAL> <> )
    | (?P<ORDER> [<>]=? )
    | (?P<_EQUAL> = )
    | (?P<_PLUS> \+ )
    | (?P<MINUS> - )
    | (?P<_LEFT> \( )
    | (?P<_RIGHT> \) )
    | (?P<_COMMA> , )
    """,
    re.VERBOSE,
)
_BREAK: Final = re.compile(r"[\n\r]")

_WORDS: Final = {
    "NOT": "NOT",
    "AND": "_AND",
    "OR": "_OR",
    "BETWEEN": "_BETWEEN",
    "IN": "_IN",
    "TRUE": "TRUE",
    "FALSE": "FALSE",
    "NULL": "NULL",
    "IS": "_IS",
    "CONTAINS": "SEARCH",
    "STARTSWITH": "SEARCH",
    "ENDSWITH": "SEARCH",
}

# Tokens as error texts name them.
_SHOWN: Final = {
    "_EQUAL": "=",
    "_UNEQUAL": "<>",
    "ORDER": "a comparison",
    "_LEFT": "(",
    "_RIGHT": ")",
    "_COMMA": ",",
    "STRING": "a string in single quotes",
    "SEARCH": "CONTAINS, STARTSWITH or ENDSWITH",
    "$END": "the end",
}


class _Tokens(Lexer):
    """
    Divides an expression into tokens, one at a time: the text after a complete
    expression need not consist of tokens.
    """

    def __init__(self, configuration: object) -> None:
        pass

    def lex(self, text: str) -> Iterator[Token]:  # type: ignore[override]
        at, end = 0, len(text)
        # After the last line break there are no line comments.  Searching for the end of
        # one at each of ten thousand minuses would take seconds.
        lastBreak = max(text.rfind("\n"), text.rfind("\r"))
        count = 0
        while at < end:
            if at < lastBreak and text.startswith("--", at):
                found = _BREAK.search(text, at)
            else:
                found = _TOKEN.match(text, at)
            if found is None:
                problem = (
                    "an unterminated string" if text[at] == "'" else f"unexpected {text[at]!r}"
                )
                raise BadExpression(at, problem)
            kind = found.lastgroup
            if kind == "NAME":
                kind = _WORDS.get(found[0].upper(), kind)
            if kind is not None and kind != "SPACE":
                count += 1
                if count > MAX_WORDS:
                    raise BadExpression(at, f"more than {MAX_WORDS} names, values and operators")
                yield Token(kind, found[0], at)
            at = found.end()


def _at(token: Token) -> int:
    assert token.start_pos is not None
    return token.start_pos


def _text(token: Token) -> str:
    return token[1:-1].replace("''", "'")


@v_args(inline=True)
class _Tree(Transformer[Token, Expression]):
    """
    Creates the nodes of the tree, each as soon as its parts are parsed.
    """

    def start(self, value: Expression) -> Boolean:
        return asBoolean(value)

    def ortest(self, *parts: Expression) -> AnyOf:
        return AnyOf(parts[0].at, tuple(map(asBoolean, parts)))

    def andtest(self, *parts: Expression) -> AllOf:
        return AllOf(parts[0].at, tuple(map(asBoolean, parts)))

    def equality(self, left: Expression, right: Expression) -> Equal:
        return equal(left, right)

    def inequality(self, left: Expression, right: Expression) -> Not:
        return Not(left.at, equal(left, right))

    def isnull(self, value: Expression, null: Token) -> Equal:
        return Equal(value.at, value, self.null(null))

    def isnotnull(self, value: Expression, no: Token, null: Token) -> Not:
        return Not(value.at, self.isnull(value, null))

    def order(self, left: Expression, symbol: Token, right: Expression) -> Ordered:
        return ordered(str(symbol), left, right)

    def between(self, value: Expression, low: Expression, high: Expression) -> AllOf:
        return between(value, low, high)

    def notbetween(self, value: Expression, no: Token, low: Expression, high: Expression) -> AnyOf:
        return notBetween(value, low, high)

    def within(self, value: Expression, *strings: Token) -> Within:
        return within(value, frozenset(map(_text, strings)), negated=False)

    def notwithin(self, value: Expression, no: Token, *strings: Token) -> Within:
        return within(value, frozenset(map(_text, strings)), negated=True)

    def search(self, value: Expression, how: Token, text: Token) -> Search:
        return Search(value.at, how.upper(), value, _text(text), negated=False)

    def notsearch(self, value: Expression, no: Token, how: Token, text: Token) -> Search:
        return Search(value.at, how.upper(), value, _text(text), negated=True)

    def negative(self, minus: Token, value: Expression) -> Negative:
        return Negative(_at(minus), value)

    def negation(self, no: Token, value: Expression) -> Not:
        return Not(_at(no), asBoolean(value))

    def string(self, token: Token) -> Constant:
        return Constant(_at(token), Kind.STRING, _text(token))

    def decimal(self, token: Token) -> Constant:
        return decimalNumber(_at(token), token)

    def floating(self, token: Token) -> Constant:
        return floatingNumber(_at(token), token)

    def true(self, token: Token) -> Constant:
        return Constant(_at(token), Kind.BOOLEAN, True)

    def false(self, token: Token) -> Constant:
        return Constant(_at(token), Kind.BOOLEAN, False)

    def null(self, token: Token) -> Constant:
        return Constant(_at(token), Kind.NOTHING, None)

    def name(self, token: Token) -> Property:
        return Property(_at(token), str(token))


_PARSER: Final = Lark(_GRAMMAR, parser="lalr", lexer=_Tokens, transformer=_Tree())


def parse(text: str) -> tuple[Boolean, int]:
    """
    Parse an expression.

    @return: the tree, and the length of the text that was parsed.
    @raise BadExpression: if the text cannot be parsed.
    """
    parsing = _PARSER.parse_interactive(text)
    try:
        for _ in parsing.iter_parse():
            pass
        return parsing.feed_eof(), len(text)
    except UnexpectedToken as error:
        if error.token.type == "$END":
            raise _unexpected(parsing, len(text.rstrip()), "the end") from None
        return _complete(parsing, error.token)


def _complete(parsing: InteractiveParser, token: Token) -> tuple[Boolean, int]:
    """
    The expression before a token that cannot follow it.
    """
    try:
        return parsing.feed_eof(token), _at(token)
    except UnexpectedToken:
        raise _unexpected(parsing, _at(token), shortened(token)) from None


def _unexpected(parsing: InteractiveParser, at: int, what: str) -> BadExpression:
    possible = [each for each in parsing.choices() if each.isupper()]
    if "NAME" in possible:
        wanted = "a property or a value"
    else:
        wanted = " or ".join(sorted(_SHOWN.get(each, each.strip("_")) for each in possible))
    return BadExpression(at, f"{what}, where {wanted} was expected")
