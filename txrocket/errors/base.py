# SPDX-License-Identifier: Apache-2.0
"""
The root of txrocket's errors, and the error of wrong settings, which every layer
may raise.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = ["ConfigError", "RocketError"]


class RocketError(Exception):
    """
    The root of txrocket's errors.

    @cvar retriable: whether the same request may succeed when it is sent again, to
        another broker if there is one.
    """

    retriable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        # Copy the attributes instead of calling the class with args, as pickle would by
        # default: most constructors take other arguments than the text.
        return _copied, (type(self), self.args, self.__dict__)


def _copied(
    kind: type[RocketError], args: tuple[object, ...], state: dict[str, Any]
) -> RocketError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ConfigError(RocketError, ValueError):
    """
    Settings are not valid.  All problems are reported at once, not only the first.

    @ivar problems: one line per problem, with its file and line, the key and the
        expected value.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
