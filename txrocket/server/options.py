# SPDX-License-Identifier: Apache-2.0
"""
The command line that all servers share: C{-c} and C{-p} as in RocketMQ, C{--check},
and C{--set} for any setting.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from twisted.logger import Logger
from twisted.python import usage

from txrocket.config import Configuration
from txrocket.errors import ConfigError
from txrocket.protocol.configtext import write
from txrocket.remoting.settings import TLSSettings

__all__ = ["ServerOptions"]


class ServerOptions(usage.Options):
    """
    The options of a server; each server has a subclass.

    @cvar sections: the server's sections; see L{txrocket.config}.
    @cvar javaKeys: the settings that RocketMQ's server has.
    @cvar shortForms: the optParameters of the derived class, such as
        C{namesrvAddr}, that stand for settings of the same name.
    @ivar configuration: all settings, once the command line is parsed.
    """

    sections: ClassVar[Sequence[type]] = ()
    javaKeys: ClassVar[Collection[str]] = ()
    shortForms: ClassVar[Sequence[str]] = ()

    synopsis = "[options]"
    optParameters: list[list[Any]] = [
        ["configFile", "c", None, "A .properties file with settings, such as RocketMQ's own."],
    ]
    optFlags = [
        ["printConfigItem", "p", "Print all settings and do not start."],
        ["check", None, "Say what is wrong with the settings, if anything, and do not start."],
    ]

    configuration: Configuration
    _log = Logger()

    def opt_set(self, setting: str) -> None:
        """
        A setting, as key=value; it overrides the file's. Can be repeated.
        """
        key, equals, value = setting.partition("=")
        if not key.strip() or not equals:
            raise usage.UsageError(f"--set {setting}: key=value was expected")
        self.setdefault("set", {})[key.strip()] = value

    opt_s = opt_set

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """
        Parse the command line and read the settings.

        @raise SystemExit: if one of them is not valid; it says why.
        """
        try:
            usage.Options.parseOptions(self, options)
        except usage.UsageError as error:
            # twistd would print its own options, and older versions exit with status 0.
            raise SystemExit(f"Cannot start: {error}") from None

    def postOptions(self) -> None:
        """
        Read the settings.
        """
        try:
            self.configuration = self.read()
        except ConfigError as error:
            if self["check"]:
                print(error)
                raise SystemExit(1) from None
            raise usage.UsageError(str(error)) from None
        if self["check"]:
            print("\n".join([*self.configuration.warnings, "The configuration is sound"]))
            raise SystemExit(0)
        if self["printConfigItem"]:
            print(write(self.configuration.properties()).decode("ascii"), end="")
            raise SystemExit(0)
        for line in self.configuration.warnings:
            self._log.warn("{line}", line=line)

    def given(self) -> dict[str, str]:
        """
        The settings of the command line.
        """
        short = {key: self[key] for key in self.shortForms if self[key] is not None}
        return {**short, **self.get("set", {})}

    def read(self) -> Configuration:
        """
        The settings of the file and the command line.

        @raise ConfigError: if a setting is not valid; it lists all problems.
        """
        configuration = Configuration.read(
            self.sections, self.javaKeys, self["configFile"], self.given()
        )
        if TLSSettings in self.sections:
            try:
                configuration[TLSSettings].check()
            except ValueError as error:
                raise ConfigError(str(error)) from None
        return configuration
