# SPDX-License-Identifier: Apache-2.0
"""
A parser for options as Spark passes them: texts by name, without regard to case.

It collects all problems, so that one error lists every wrong option.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from txrocket.acl import Credentials
from txrocket.blocking import TLS, Settings
from txrocket.errors import ConfigError, RocketError

__all__ = ["CONNECTION", "OptionParser"]

#: The options of every source and sink that connects to brokers.
CONNECTION = (
    *("nameServers", "accessKey", "secretKey", "timeoutMs"),
    *("useTLS", "tlsAuthServer", "tlsTrustCertPath", "tlsCertPath", "tlsKeyPath", "tlsKeyPassword"),
)

_Default = TypeVar("_Default")

# In milliseconds.  A broker may need that long for a restart.
_TIMEOUT = 30_000

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9]{1,12}) *(ms|s|m|h)?")


class OptionParser:
    """
    Reads options by name and type.

    @ivar problems: the problems found so far, one text each.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        known: Iterable[str],
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        """
        @param known: the names of options.  A name that resembles one of them is a
            problem; any other name belongs to another reader and is ignored.
        @param aliases: for each further name, the name of its option.
        """
        self.problems: list[str] = []
        self._values: dict[str, str] = {}
        self._names = {each.lower(): each for each in known}
        others = {each.lower(): each for each in aliases or ()}
        for key, value in options.items():
            name = self._names.get(key.lower())
            if name is None and key.lower() in others:
                name = (aliases or {})[others[key.lower()]]
                if name.lower() in (each.lower() for each in options):
                    self.wrong(others[key.lower()], f"is another name of {name}, give one of them")
                    continue
            if name is not None:
                self._values[name] = value
            elif near := difflib.get_close_matches(key.lower(), [*self._names, *others], 1, 0.85):
                meant = self._names.get(near[0]) or others[near[0]]
                self.problems.append(f"option {key} does not exist; is {meant} meant?")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def wrong(self, name: str, what: str) -> None:
        """
        Add a problem of an option.
        """
        self.problems.append(f"option {name}: {what}")

    def check(self) -> None:
        """
        @raise ConfigError: if there is a problem; it lists all of them.
        """
        if self.problems:
            raise ConfigError(*self.problems)

    def text(self, name: str, default: _Default) -> str | _Default:
        """
        A text that is not empty.
        """
        if name not in self._values:
            return default
        value = self._values[name].strip()
        if not value:
            self.wrong(name, "is empty")
            return default
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """
        Texts with commas between them.
        """
        text = self.text(name, "")
        texts = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
        if text and not texts:
            self.wrong(name, f"{text!r} names nothing")
        return texts

    def number(self, name: str, default: _Default, least: int = 1) -> int | _Default:
        """
        A whole number.
        """
        if name not in self._values:
            return default
        text = self._values[name].strip()
        if not (text.isascii() and text.removeprefix("-").isdigit()):
            self.wrong(name, f"{text!r} is not a whole number")
        elif int(text) < least:
            self.wrong(name, f"{text} is less than {least}")
        else:
            return int(text)
        return default

    def duration(self, name: str, default: float) -> float:
        """
        A duration in seconds, from a number with C{ms}, C{s}, C{m} or C{h} behind it.
        A number alone is in milliseconds.
        """
        if name not in self._values:
            return default
        text = self._values[name].strip()
        match = _DURATION.fullmatch(text)
        if match is None:
            self.wrong(name, f"{text!r} is not a duration such as 500ms, 30s, 15m or 1h")
            return default
        return int(match[1]) * _UNITS[match[2] or "ms"]

    def truth(self, name: str, default: bool) -> bool:
        """
        C{true} or C{false}.
        """
        text = self._values.get(name, str(default)).strip().lower()
        if text not in ("true", "false"):
            self.wrong(name, f"{text!r} is neither true nor false")
        return text == "true"

    def exclusive(self, *names: str) -> list[str]:
        """
        The options that are set, of several that exclude each other.
        """
        there = [each for each in names if each in self]
        if len(there) > 1:
            self.problems.append(f"only one of the options {', '.join(there)} can be given")
        return there

    def settings(self, **more: object) -> Settings | None:
        """
        The client's settings; L{None} if they are not valid.

        @param more: further settings.
        """
        account = [each for each in ("accessKey", "secretKey") if each in self]
        credentials = None
        if len(account) == 1:
            self.problems.append(
                f"the options accessKey and secretKey belong together; {account[0]} is the only one"
            )
        elif account:
            credentials = Credentials(self.text("accessKey", ""), self.text("secretKey", ""))
        try:
            return Settings(
                self.text("nameServers", None),
                timeout=self.number("timeoutMs", _TIMEOUT) / 1000,
                tls=self._tls(),
                credentials=credentials,
                **more,  # type: ignore[arg-type]
            )
        except RocketError as error:
            if "nameServers" in self:
                self.wrong("nameServers", str(error))
            else:
                self.problems.append(f"{error}: give the option nameServers")
            return None

    def _tls(self) -> TLS | None:
        details = [each for each in CONNECTION if each.startswith("tls") and each in self]
        if not self.truth("useTLS", False):
            if details:
                self.problems.append(f"the option {details[0]} needs useTLS=true")
            return None
        return TLS(
            self.truth("tlsAuthServer", False),
            self.text("tlsTrustCertPath", None),
            self.text("tlsCertPath", None),
            self.text("tlsKeyPath", None),
            self.text("tlsKeyPassword", None),
        )
