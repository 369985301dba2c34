# SPDX-License-Identifier: Apache-2.0
"""
A .properties file that people write and that a server changes.

The server changes lines and leaves the rest to the people: what Java writes back
are all its settings, in any order and without a comment.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Mapping

from txrocket.errors import ConfigError, MalformedBody
from txrocket.protocol.properties import Entry, amend, entries

__all__ = ["PropertiesFile"]


class PropertiesFile:
    """
    @ivar path: the file's name, as it was given.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        # A daemon changes its folder after this.
        self._absolute = os.path.abspath(path)

    def entries(self) -> list[Entry]:
        """
        All keys and values in their order.

        @raise ConfigError: if the file cannot be read.
        """
        text, _ = self._load()
        try:
            return list(entries(text))
        except MalformedBody as error:
            raise ConfigError(f"{self.path}: {error}") from None

    def amend(self, changes: Mapping[str, str]) -> None:
        """
        Change or append values.  A crash leaves the old file or the new one.

        @raise ConfigError: if it cannot be done.
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
        The text and its encoding.  Java takes each byte for a character, so that
        comments may be in any encoding; what is no UTF-8 is read in that way.
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
    # The file that a link leads to, and not the link.
    folder, name = os.path.split(os.path.realpath(path))
    old = os.stat(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        with open(handle, "wb") as file:
            # It stays its owner's, as far as this process may see to that.
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
