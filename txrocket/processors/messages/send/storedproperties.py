# SPDX-License-Identifier: Apache-2.0
"""
A message's properties as the log gets them: without WAIT, with CLUSTER.

    UNIQ_KEY 01 7F00...0205 02 WAIT 01 true 02 TAGS 01 a 02      as they were sent
    UNIQ_KEY 01 7F00...0205 02 TAGS 01 a 02 CLUSTER 01 c         as they are stored
"""

from __future__ import annotations

import re
from typing import Final

from txrocket.message import PROPERTY_WAIT, splitProperties

__all__ = ["SPECIAL", "storedProperties", "undelayed"]

_WAIT = re.compile("(?:\\A|(?<=\x02))WAIT\x01[^\x02]*\x02")
_CLUSTER = re.compile("(?:\\A|(?<=\x02))CLUSTER\x01[^\x02]*\x02")
_DELAY = re.compile("(?:\\A|(?<=\x02))DELAY\x01[^\x02]*\x02")
_TRUE = "\x02WAIT\x01true\x02"

#: Finds properties that may have a message go another way than into its topic: names
#: that end like these are found as well.
SPECIAL: Final = re.compile(
    "(?:TRAN_MSG|DELAY|TIMER_DELAY_MS|TIMER_DELAY_SEC|TIMER_DELIVER_MS|__STARTDELIVERTIME)\x01"
).search


def storedProperties(properties: str | None, cluster: str) -> tuple[str, bool]:
    """
    A message's properties as the log gets them: without WAIT, with CLUSTER.

    @param cluster: C{CLUSTER \\x01} and the cluster's name.
    @return: the properties, and whether the sender waits for the disk.
    """
    if not properties:
        return cluster, True
    text = properties if properties[-1] == "\x02" else properties + "\x02"
    waits = True
    if "WAIT\x01" in text:
        # Java's producers send it so, always; a search is a tenth of the pattern's.
        text = text.replace(_TRUE, "\x02")
        if "WAIT\x01" in text:
            # Of several the last counts, which may be one that is gone now.
            waits = splitProperties(properties).get(PROPERTY_WAIT, "true").lower() == "true"
            text = _WAIT.sub("", text)
    if "CLUSTER\x01" in text:
        text = _CLUSTER.sub("", text)
    return text + cluster, waits


def undelayed(properties: str) -> str:
    """
    What L{storedProperties} gave, without a delay level.
    """
    return _DELAY.sub("", properties)
