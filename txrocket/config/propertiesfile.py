# SPDX-License-Identifier: Apache-2.0
"""
A .properties file that operators edit and that the server changes.

The server replaces single lines and leaves the others as they are.  Java writes back
all its settings in any order, and loses the comments.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Mapping

from txrocket.errors import ConfigError, MalformedBody
from txrocket.protocol.configtext import ConfigEntry, amend, entries

__all__ = ["PropertiesFile"]


class PropertiesFile:
    """
    A .properties file.

    @ivar path: the path as configured, for messages.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        # Resolve it now, because a daemon changes its working directory later.
        self._absolute = os.path.abspath(path)

    def entries(self) -> list[ConfigEntry]:
        """
        Read all keys and values in their order.

        @raise ConfigError: if the file cannot be read.
        """
        text, _ = self._load()
        try:
            return list(entries(text))
        except MalformedBody as error:
            raise ConfigError(f"{self.path}: {error}") from None

    def amend(self, changes: Mapping[str, str]) -> None:
        """
        Change or append values.  After a crash, either the old file or the new one is
        there.

        @raise ConfigError: if the file cannot be read or written.
        """
        text, encoding = self._load()
        try:
            _replace(self._absolute, amend(text, changes).encode(encoding))
        except MalformedBody as error:
            raise ConfigError(f"{self.path}: {error}") from None
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written: {error.strerror}") from None

    def _load(self) -> tuple[str, str]:
        """
        Read the text and its encoding.  If the file is not UTF-8, each byte is read as one
        character, as in Java, because comments may be in any encoding.
        """
        try:
            with open(self._absolute, "rb") as file:
                data = file.read()
        except OSError as error:
            raise ConfigError(f"{self.path}: {error.strerror}") from None
        try:
            return data.decode("utf-8"), "utf-8"
        except UnicodeDecodeError:
            return data.decode("latin-1"), "latin-1"


def _replace(path: str, data: bytes) -> None:
    # Replace the target of a symbolic link, not the link.
    folder, name = os.path.split(os.path.realpath(path))
    old = os.stat(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        with open(handle, "wb") as file:
            # Keep the owner, if this process has the permission to set it.
            with contextlib.suppress(PermissionError):
                os.fchown(handle, old.st_uid, old.st_gid)
            os.fchmod(handle, stat.S_IMODE(old.st_mode))
            file.write(data)
            file.flush()
            os.fsync(handle)
        os.replace(temporary, os.path.join(folder, name))
    except BaseException:
        os.unlink(temporary)
        raise
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
