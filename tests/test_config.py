# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.config}.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.config import Configuration, atLeast, between
from txrocket.config.javakeys import BROKER_KEYS
from txrocket.errors import ConfigError, RocketError
from txrocket.model import DataVersion
from txrocket.protocol.configtext import parse, write

LIVE = {"live": True}


class Role(Enum):
    """
    Text with a few possible values.
    """

    MASTER = "ASYNC_MASTER"
    SLAVE = "SLAVE"


def hour(section: object, attribute: attrs.Attribute[Any], value: str) -> None:
    """
    A validator for text.
    """
    if not value.isdigit():
        raise ValueError("hours were expected")


@attrs.frozen
class Store:
    """
    A section with each type of setting.
    """

    storePathRootDir: str = "store"
    fileReservedTime: int = attrs.field(default=72, validator=atLeast(1), metadata=LIVE)
    deleteWhen: str = attrs.field(default="04", validator=hour, metadata=LIVE)
    ratio: float = attrs.field(
        default=0.85, validator=between(0, 1), metadata={"key": "disk.ratio", **LIVE}
    )
    brokerRole: Role = attrs.field(default=Role.MASTER, metadata=LIVE)
    traceOn: bool = attrs.field(default=True, metadata=LIVE)


@attrs.frozen
class Address:
    """
    A section with optional settings, and with a rule for two of them.
    """

    brokerIP1: str | None = None
    listenPort: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(between(0, 65535))
    )
    password: str | None = attrs.field(default=None, metadata={"secret": True})
    least: int = attrs.field(default=1, metadata=LIVE)
    most: int = attrs.field(default=9, metadata=LIVE)

    def __attrs_post_init__(self) -> None:
        if self.least > self.most:
            raise ValueError(f"least={self.least}: more than most={self.most}")


@attrs.frozen
class Named:
    """
    A section with a required setting.
    """

    brokerName: str


class ConfigCase(SynchronousTestCase):
    """
    A test with a file.
    """

    def write(self, text: str) -> str:
        """
        Write a file.
        """
        folder = Path(self.mktemp())
        folder.mkdir()
        path = folder / "broker.conf"
        path.write_bytes(text.encode())
        return str(path)

    def read(self, text: str = "", **given: str) -> Configuration:
        """
        Read a configuration from a file with this text, and from options.
        """
        return Configuration.read([Store, Address], BROKER_KEYS, self.write(text), given)

    def problems(self, text: str, given: Mapping[str, str] | None = None) -> list[str]:
        """
        The problems of a text, without the file's name.
        """
        path = self.write(text)
        error = self.assertRaises(
            ConfigError, Configuration.read, [Store, Address], BROKER_KEYS, path, given or {}
        )
        self.assertEqual(str(error), "\n".join(error.problems))
        return [each.removeprefix(path) for each in error.problems]


class ReadTests(ConfigCase):
    """
    Tests for L{Configuration.read}.
    """

    def test_noFileGivesDefaults(self) -> None:
        """
        Without a file and options all settings have their defaults.
        """
        configuration = Configuration.read([Store, Address], BROKER_KEYS, None, {})
        self.assertEqual(configuration[Store], Store())
        self.assertEqual(configuration[Address], Address())
        self.assertEqual(configuration.warnings, [])
        self.assertEqual(configuration.version, DataVersion(0, 0))

    def test_textIsConverted(self) -> None:
        """
        Text is converted to the setting's type. Words may be in any case, and blanks
        around a value are removed.
        """
        configuration = self.read(
            "storePathRootDir = C:\\\\store \nfileReservedTime=+48\t\ndisk.ratio=.5\n"
            "brokerRole:slave\ntraceOn FALSE\nbrokerIP1= 10.0.0.1 \nlistenPort=10911\n"
        )
        self.assertEqual(configuration[Store], Store("C:\\store", 48, "04", 0.5, Role.SLAVE, False))
        self.assertEqual(configuration[Address], Address("10.0.0.1", 10911))

    def test_emptyOptionalIsNone(self) -> None:
        """
        An empty text is L{None} for an optional setting, else the empty text.
        """
        configuration = self.read("brokerIP1=\nlistenPort=  \nstorePathRootDir=\n")
        self.assertEqual(configuration[Address], Address())
        self.assertEqual(configuration[Store].storePathRootDir, "")

    def test_optionsOverrideFile(self) -> None:
        """
        Options override the file; of a repeated key in the file the last one counts, as
        in Java.
        """
        configuration = self.read("least=2\nmost=3\nmost=4\n", least="3")
        self.assertEqual(configuration[Address], Address(least=3, most=4))

    def test_malformedValueNamesLine(self) -> None:
        """
        The error of a value of a wrong type has file, line and key, and what was
        expected.
        """
        for line, said in (
            ("traceOn=yes", "true or false was expected"),
            ("traceOn=", "true or false was expected"),
            ("fileReservedTime=72h", "a whole number was expected"),
            ("fileReservedTime=7_2", "a whole number was expected"),
            ("fileReservedTime=1.5", "a whole number was expected"),
            ("fileReservedTime=٣", "a whole number was expected"),
            ("fileReservedTime=9223372036854775808", "a whole number was expected"),
            ("fileReservedTime=", "a whole number was expected"),
            ("disk.ratio=half", "a number was expected"),
            ("disk.ratio=nan", "a number was expected"),
            ("disk.ratio=1e999", "a number was expected"),
            ("brokerRole=MASTER", "ASYNC_MASTER or SLAVE was expected"),
            ("deleteWhen=never", "hours were expected"),
            ("fileReservedTime=0", "1 or more was expected"),
            ("disk.ratio=1.5", "0 to 1 was expected"),
            ("listenPort=65536", "0 to 65535 was expected"),
        ):
            self.assertEqual(self.problems(f"# c\n\n{line}\n"), [f":3: {line}: {said}"])

    def test_attrsValidatorsAreShown(self) -> None:
        """
        attrs' own validators can be used, and the text of their errors is shown.
        """

        @attrs.frozen
        class Section:
            level: int = attrs.field(default=1, validator=attrs.validators.in_([1, 2]))

        error = self.assertRaises(
            ConfigError, Configuration.read, [Section], (), None, {"level": "3"}
        )
        self.assertEqual(str(error), "--set level=3: 'level' must be in [1, 2] (got 3)")

    def test_unknownKeySuggestsNearest(self) -> None:
        """
        The error of an unknown key suggests the nearest known key, ours or RocketMQ's, if
        one is near.
        """
        self.assertEqual(
            self.problems("lisenPort=1\nDELETEWHEN=04\ntransientPoolSize=5\nxyz=1\n"),
            [
                ":1: lisenPort: unknown; did you mean listenPort?",
                ":2: DELETEWHEN: unknown; did you mean deleteWhen?",
                ":3: transientPoolSize: unknown; did you mean transientStorePoolSize?",
                ":4: xyz: unknown",
            ],
        )

    def test_malformedOptionIsNamed(self) -> None:
        """
        The error of a wrong option names the option.
        """
        self.assertEqual(
            self.problems("least=x\n", {"least": "y", "lisenPort": "1"}),
            [
                "--set least=y: a whole number was expected",
                "--set lisenPort: unknown; did you mean listenPort?",
            ],
        )

    def test_allProblemsAreReported(self) -> None:
        """
        All problems of all kinds are reported at once.
        """
        path = self.write("fileReservedTime=0\nxyz=1\nleast=10\n")
        error = self.assertRaises(
            ConfigError, Configuration.read, [Store, Address, Named], (), path, {"traceOn": "x"}
        )
        self.assertEqual(
            list(error.problems),
            [
                f"{path}:1: fileReservedTime=0: 1 or more was expected",
                f"{path}:2: xyz: unknown",
                "--set traceOn=x: true or false was expected",
                f"{path}: brokerName is not set",
                f"{path}: least=10: more than most=9",
            ],
        )
        self.assertIsInstance(error, RocketError)
        self.assertIsInstance(error, ValueError)

    def test_missingRequiredSettingIsRefused(self) -> None:
        """
        A setting without a default must be set, in the file or by an option.
        """
        error = self.assertRaises(ConfigError, Configuration.read, [Named], (), None, {})
        self.assertEqual(str(error), "brokerName is not set")
        configuration = Configuration.read([Named], (), None, {"brokerName": "a"})
        self.assertEqual(configuration[Named], Named("a"))

    def test_malformedValueIsReportedOnce(self) -> None:
        """
        A section with a malformed value is not reported for the consequences.
        """
        self.assertEqual(
            self.problems("least=5\nmost=x\n"), [":2: most=x: a whole number was expected"]
        )

    def test_javaKeysWithoutEffectAreWarned(self) -> None:
        """
        RocketMQ's keys that are in no section are accepted, with one warning that lists
        them in order.
        """
        configuration = self.read(
            "useEpollNativeSelector=true\nleast=2\nstorePathIndex=/i\n", dLegerGroup="g"
        )
        names = "useEpollNativeSelector, storePathIndex, dLegerGroup"
        self.assertEqual(configuration.warnings, [f"Settings that have no effect here: {names}"])

    def test_secretIsNotShown(self) -> None:
        """
        A secret is in no error, nor is the value of a misspelt key.
        """

        @attrs.frozen
        class Section:
            password: str = attrs.field(default="1234", validator=hour, metadata={"secret": True})

        for key, said in (
            ("password", "--set password: hours were expected"),
            ("pasword", "--set pasword: unknown; did you mean password?"),
        ):
            error = self.assertRaises(
                ConfigError, Configuration.read, [Section], (), None, {key: "sesame"}
            )
            self.assertEqual(str(error), said)

    def test_longTextIsShortened(self) -> None:
        """
        A key or value that is long or not printable is shortened and escaped in errors.
        """
        self.assertEqual(
            self.problems(f"least=\\n{'1' * 200}\\n1\n", {"a\nb": ""}),
            [
                f":1: least={'1' * 100!r}: a whole number was expected",
                "--set 'a\\nb': unknown",
            ],
        )

    def test_unreadableFileIsNamed(self) -> None:
        """
        The error of a file that cannot be read names it.
        """
        error = self.assertRaises(ConfigError, Configuration.read, [Store], (), "no/such.conf", {})
        self.assertEqual(str(error), "no/such.conf: No such file or directory")

    @given(st.dictionaries(st.sampled_from([*attrs.fields_dict(Store), "x"]), st.text()))
    def test_anyTextRaisesOnlyConfigError(self, given: dict[str, str]) -> None:
        """
        Any texts are settings or a ConfigError with a line for each problem.
        """
        try:
            Configuration.read([Store], (), None, given)
        except ConfigError as error:
            self.assertLessEqual(len(error.problems), len(given))
            self.assertEqual(len(str(error).splitlines()), len(error.problems))


class SectionTests(SynchronousTestCase):
    """
    The declaration of sections.
    """

    def test_liveTextNeedsValidator(self) -> None:
        """
        A text setting without a validator, such as a path, cannot be live.
        """

        @attrs.frozen
        class Section:
            path: str | None = attrs.field(default=None, metadata=LIVE)

        error = self.assertRaises(TypeError, Configuration.read, [Section], (), None, {})
        self.assertEqual(str(error), "Section.path: a live text setting needs a validator")

    def test_unsupportedTypeIsRefused(self) -> None:
        """
        A type without a single text form is refused.
        """
        for hint in (list, "int | str | None", "list[int]"):
            section = attrs.make_class("Section", {"x": attrs.field(default=None)}, frozen=True)
            section.__annotations__ = {"x": hint}
            error = self.assertRaises(TypeError, Configuration.read, [section], (), None, {})
            self.assertTrue(str(error).startswith("Section.x: "), error)

    def test_keyInTwoSectionsIsRefused(self) -> None:
        """
        A key can be in one section only.
        """

        @attrs.frozen
        class Section:
            least: int = 1

        error = self.assertRaises(TypeError, Configuration.read, [Address, Section], (), None, {})
        self.assertEqual(str(error), "least is in two sections")


class PropertiesTests(ConfigCase):
    """
    Tests for L{Configuration.properties}.
    """

    def test_propertiesHaveAllButSecrets(self) -> None:
        """
        All settings except secrets are there under their keys, as Java would write them.
        """
        configuration = self.read("disk.ratio=0.5\npassword=sesame\nlistenPort=10911\n")
        self.assertEqual(
            configuration.properties(),
            {
                "storePathRootDir": "store",
                "fileReservedTime": "72",
                "deleteWhen": "04",
                "disk.ratio": "0.5",
                "brokerRole": "ASYNC_MASTER",
                "traceOn": "true",
                "brokerIP1": "",
                "listenPort": "10911",
                "least": "1",
                "most": "9",
            },
        )

    @given(
        st.builds(
            Store,
            st.text().map(str.strip),
            st.integers(1, 2**63 - 1),
            st.just("05"),
            st.floats(0, 1),
            st.sampled_from(Role),
            st.booleans(),
        )
    )
    def test_writtenSettingsAreRead(self, section: Store) -> None:
        """
        Settings are read as they were written.
        """
        first = Configuration.read([Store], (), None, {})
        first.live(Store).now = section
        second = Configuration.read([Store], (), None, parse(write(first.properties())))
        self.assertEqual(second[Store], section)


class UpdateTests(ConfigCase):
    """
    Tests for L{Configuration.update}.
    """

    RESTART = "needs a restart: change it in {} and restart the server"

    def refused(self, configuration: Configuration, changes: dict[str, str]) -> list[str]:
        """
        The problems of refused changes; assert that nothing changes.
        """
        before, version = configuration.properties(), configuration.version
        error = self.assertRaises(ConfigError, configuration.update, changes, 5)
        self.assertEqual((configuration.properties(), configuration.version), (before, version))
        return list(error.problems)

    def test_updateChangesSections(self) -> None:
        """
        Settings of several sections are changed at once, and the version counts the
        change.
        """
        configuration = self.read()
        changed = configuration.update({"traceOn": " False ", "least": "2", "most": "9"}, 1234)
        self.assertEqual(changed, {"traceOn", "least"})
        self.assertFalse(configuration[Store].traceOn)
        self.assertEqual(configuration[Address], Address(least=2))
        self.assertEqual(configuration.version, DataVersion(1234, 1))
        configuration.update({"disk.ratio": "0.25"}, 1235)
        self.assertEqual(configuration[Store], Store(traceOn=False, ratio=0.25))
        self.assertEqual(configuration.version, DataVersion(1235, 2))

    def test_sameValueIsNoChange(self) -> None:
        """
        A setting that already has the value is no change: it is not counted, written or
        reported.
        """
        path = self.write("")
        configuration = Configuration.read([Store], (), path, {})
        configuration.follow(Store, lambda section: self.fail("told of no change"))
        os.unlink(path)
        self.assertEqual(configuration.update({"traceOn": "TRUE"}, 5), frozenset())
        self.assertEqual(configuration.update({}, 5), frozenset())
        self.assertEqual(configuration.version, DataVersion(0, 0))

    def test_settingThatIsNotLiveIsRefused(self) -> None:
        """
        The error of a setting that is not live says how to change it.
        """
        configuration = Configuration.read([Store], (), None, {})
        self.assertEqual(
            self.refused(configuration, {"storePathRootDir": "/etc"}),
            [f"storePathRootDir: {self.RESTART.format('its options')}"],
        )
        path = self.write("")
        configuration = Configuration.read([Store], (), path, {})
        self.assertEqual(
            self.refused(configuration, {"storePathRootDir": "store"}),
            [f"storePathRootDir: {self.RESTART.format(path)}"],
        )

    def test_oneProblemRefusesAllChanges(self) -> None:
        """
        All problems are reported at once, and nothing changes.
        """
        path = self.write("traceOn=true\n")
        configuration = Configuration.read([Store, Address], BROKER_KEYS, path, {})
        self.assertEqual(
            self.refused(
                configuration,
                {
                    "traceOn": "false",
                    "fileReservedTime": "0",
                    "messageStorePlugIn": "org.example.Run",
                    "listen": "1",
                    "lesat": "1",
                },
            ),
            [
                "fileReservedTime=0: 1 or more was expected",
                "messageStorePlugIn: has no effect here",
                "listen: unknown",
                "lesat: unknown; did you mean least?",
            ],
        )
        self.assertEqual(Path(path).read_text(), "traceOn=true\n")

    def test_brokenRuleRefusesAllChanges(self) -> None:
        """
        Settings that break a rule of their section are refused together with all others.
        """
        configuration = self.read()
        self.assertEqual(
            self.refused(configuration, {"traceOn": "false", "least": "10"}),
            ["least=10: more than most=9"],
        )

    def test_tooManyChangesAreRefused(self) -> None:
        """
        More changes than settings are refused without a check of each.
        """
        configuration = Configuration.read([Address], (), None, {})
        self.assertEqual(
            self.refused(configuration, {f"least{each}": "1" for each in range(6)}),
            ["6 settings: only 5 exist"],
        )

    def test_updateChangesFile(self) -> None:
        """
        A change is written to the file, whose other lines stay as operators wrote them,
        also since the start.
        """
        path = self.write("# ours\ntraceOn = true\n")
        configuration = Configuration.read([Store], BROKER_KEYS, path, {})
        Path(path).write_text("# ours, still\ntraceOn = true\nhaListenPort = 1\n")
        configuration.update({"traceOn": "false", "disk.ratio": "0.50"}, 5)
        self.assertEqual(
            Path(path).read_text(),
            "# ours, still\ntraceOn = false\nhaListenPort = 1\ndisk.ratio=0.5\n",
        )
        again = Configuration.read([Store], BROKER_KEYS, path, {})
        self.assertEqual(again[Store], configuration[Store])

    def test_failedWriteChangesNothing(self) -> None:
        """
        If the file cannot be changed, the settings do not change.
        """
        path = self.write("")
        configuration = Configuration.read([Store], (), path, {})
        os.unlink(path)
        self.assertEqual(
            self.refused(configuration, {"traceOn": "false"}),
            [f"{path}: No such file or directory"],
        )

    def test_followersGetChangedSection(self) -> None:
        """
        Followers of a section are called after all changes are in place; followers of
        other sections are not.
        """
        configuration = self.read()
        told: list[object] = []
        configuration.follow(
            Store, lambda section: told.append((section.traceOn, configuration[Address].least))
        )
        configuration.follow(Address, told.append)
        configuration.update({"traceOn": "false", "least": "2"}, 5)
        self.assertEqual(told, [(False, 2), Address(least=2)])
        configuration.update({"least": "3"}, 6)
        self.assertEqual(told[2:], [Address(least=3)])
