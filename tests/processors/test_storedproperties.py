# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{storedProperties}: a message's properties as the log gets them.

Java splits them into a map, takes WAIT out, puts CLUSTER in, and joins what it
has then.  Here nothing is split unless it must be, and the outcome is the same.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.captures import captures
from txrocket.message import splitProperties
from txrocket.processors.messages.send.storedproperties import storedProperties
from txrocket.protocol.record.fields import joinProperties

CLUSTER = "CLUSTER\x01c"


def slowly(properties: str | None) -> tuple[dict[str, str], bool]:
    """
    What Java does: C{string2messageProperties}, C{isWaitStoreMsgOK}.
    """
    split = splitProperties(properties or "")
    waits = split.pop("WAIT", "true").lower() == "true"
    split["CLUSTER"] = "c"
    return split, waits


# Names that are, and that are not, what is looked for.
names = st.sampled_from(
    ["WAIT", "CLUSTER", "AWAIT", "WAITS", "XCLUSTER", "CLUSTERX", "wait", "TAGS", "KEYS", "n", "é"]
)
values = st.sampled_from(
    ["true", "false", "TRUE", "False", "1", "c", "WAIT", "CLUSTER", " ", "x" * 40]
)
entries = st.tuples(names, values).map("\x01".join)
# What a client may write that is no entry, or an odd one.
scraps = st.lists(st.sampled_from(["\x01", "WAIT", "CLUSTER", "true", "A"]), max_size=5)
pieces = st.one_of(entries, entries, scraps.map("".join))
texts = st.tuples(st.lists(pieces, max_size=8), st.sampled_from(["", "\x02"])).map(
    lambda made: "\x02".join(made[0]) + made[1]
)


class StoredPropertiesTests(SynchronousTestCase):
    """
    L{storedProperties}.
    """

    @given(texts)
    @example("")
    @example("WAIT\x01")
    @example("WAIT\x01\x02")
    @example("WAIT\x01true")
    @example("WAIT\x01true\x02WAIT\x01false")
    @example("a\x01b\x02WAIT\x01false\x02WAIT\x01true\x02")
    @example("a\x01b\x02WAIT\x01true\x02WAIT\x01true\x02WAIT\x01true\x02")
    @example("\x02WAIT\x01true\x02")
    @example("WAIT\x01true\x01x\x02")
    @example("AWAIT\x01false\x02XCLUSTER\x01d\x02")
    def test_asJava(self, text: str) -> None:
        """
        Whatever a client writes, the log gets what Java's map would hold, and the
        sender waits if Java's would.
        """
        stored, waits = storedProperties(text, CLUSTER)
        self.assertEqual((splitProperties(stored), waits), slowly(text))

    @given(st.dictionaries(names, values, max_size=8), st.sampled_from(["", "\x02"]))
    def test_nothingElse(self, properties: dict[str, str], end: str) -> None:
        """
        What is well made keeps its order, and nothing is added but CLUSTER.
        """
        text = joinProperties(properties)
        stored, _ = storedProperties(text + end if text else text, CLUSTER)
        expected = {
            name: value for name, value in properties.items() if name not in ("WAIT", "CLUSTER")
        }
        self.assertEqual(stored, joinProperties({**expected, "CLUSTER": "c"}))

    def test_none(self) -> None:
        """
        A message without properties gets its cluster, and is waited for.
        """
        for nothing in (None, ""):
            self.assertEqual(storedProperties(nothing, CLUSTER), (CLUSTER, True))

    def test_noWait(self) -> None:
        """
        Every value of WAIT but C{true}, however it is spelled, means not to wait.
        """
        for value, waits in (
            *(("true", True), ("True", True), ("TRUE", True)),
            *(("false", False), ("no", False), ("1", False), (" true", False)),
        ):
            self.assertEqual(
                storedProperties(f"WAIT\x01{value}\x02", CLUSTER), (CLUSTER, waits), value
            )

    def test_captured(self) -> None:
        """
        The properties that real clients sent.
        """
        texts = {
            each.header["extFields"].get(field)
            for each in captures()
            if each.requestCode in (10, 310, 320) and each.kind != "response"
            for field in ("properties", "i")
        }
        self.assertGreater(len(texts), 15)
        for text in texts:
            stored, waits = storedProperties(text, CLUSTER)
            self.assertEqual((splitProperties(stored), waits), slowly(text))
            self.assertNotIn("WAIT", splitProperties(stored))
