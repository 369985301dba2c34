# SPDX-License-Identifier: Apache-2.0
"""
Makes C{tests/fixtures/javastore.tar.xz} anew: C{python -m tests.interop.fixture}.

Java's store writes two folders and tells what is in them; one is closed, the
other one is left as its process dies.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from pathlib import Path

from tests.interop.driven import java
from tests.interop.programs import build
from tests.interop.samples import commands, small

__all__ = ["main"]

_ARCHIVE = Path(__file__).parents[1] / "fixtures" / "javastore.tar.xz"


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def main() -> None:
    """
    Write the archive.
    """
    if failed := build({"go"}):
        raise SystemExit(str(failed))
    with tempfile.TemporaryDirectory() as root:
        for name in ("closed", "killed"):
            store = java(small(f"{root}/{name}"))
            store.put(commands(name))
            lines = [json.dumps(each, ensure_ascii=False) for each in store.dump()]
            Path(root, f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
            if name == "closed":
                store.stop()
            else:
                store.halt()
        with tarfile.open(_ARCHIVE, "w:xz", preset=9) as archive:
            for path in sorted(Path(root).iterdir()):
                archive.add(path, path.name, filter=_anonymous)


if __name__ == "__main__":
    main()
