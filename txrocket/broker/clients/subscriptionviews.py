# SPDX-License-Identifier: Apache-2.0
"""
The subscriptions of each member of a consumer group.

A group has one subscription per topic, and its members divide the queues as if all had the
same.  If they have not, a member loses the messages that another's subscription filters out,
and those in queues of a member that does not subscribe to the topic.  RocketMQ does not
report that; here the broker logs it::

    member --> view: its subscriptions <-- members with the same

Most members of a group have the same subscriptions, so each view is stored once.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, TypeAlias

from txrocket.filters.tags import EVERYTHING, TAG
from txrocket.model import SubscriptionData
from txrocket.protocol.bodies.inspect import SubscriptionDifference, SubscriptionView

__all__ = ["SubscriptionViews", "View", "describe"]

#: Topic, type and expression of each subscription.
View: TypeAlias = frozenset[tuple[str, str, str]]

# What a view holds: the number of topics, and the length of a name or an expression.  A
# digest stands for the rest, so that a difference shows.
_TOPICS: Final = 1024
_LONGEST: Final = 256

# How many views are compared, and how many members are named for each.
_VIEWS: Final = 16
_NAMED: Final = 5

# How many topics are described.
_DESCRIBED: Final = 5


class SubscriptionViews:
    """
    The views of one group.
    """

    def __init__(self) -> None:
        self._members: dict[View, dict[str, None]] = {}
        self._of: dict[str, View] = {}

    @property
    def differ(self) -> bool:
        """
        Whether two members have different subscriptions.
        """
        return len(self._members) > 1

    def distinct(self) -> frozenset[View]:
        """
        All different views.
        """
        return frozenset(self._members)

    def say(self, clientId: str, wanted: Iterable[SubscriptionData]) -> bool:
        """
        Set the subscriptions of a member.

        @return: whether the set of views has changed.
        """
        view = _view(wanted)
        former = self._of.get(clientId)
        if former == view:
            return False
        changed = self.forget(clientId)
        members = self._members.get(view)
        if members is None:
            members = self._members[view] = {}
            changed = True
        else:
            # Use the view that is stored already.
            view = self._of[next(iter(members))]
        members[clientId] = None
        self._of[clientId] = view
        return changed

    def forget(self, clientId: str) -> bool:
        """
        Remove a member.

        @return: whether the set of views has changed.
        """
        view = self._of.pop(clientId, None)
        if view is None:
            return False
        members = self._members[view]
        del members[clientId]
        if members:
            return False
        del self._members[view]
        return True

    def differences(self) -> list[SubscriptionDifference]:
        """
        The topics with different subscriptions, by name.
        """
        looked = list(self._members.items())[:_VIEWS]
        wanted = [{topic: (kind, text) for topic, kind, text in view} for view, _ in looked]
        found = []
        for topic in sorted(set().union(*wanted)):
            said: dict[tuple[str, str] | None, list[str]] = {}
            for each, (_, members) in zip(wanted, looked, strict=True):
                said.setdefault(each.get(topic), []).extend(members)
            if len(said) > 1:
                views = tuple(
                    SubscriptionView(
                        None if each is None else each[1],
                        None if each is None else each[0],
                        len(members),
                        tuple(members[:_NAMED]),
                    )
                    for each, members in said.items()
                )
                found.append(SubscriptionDifference(topic, views))
        return found


def describe(differences: list[SubscriptionDifference]) -> str:
    """
    Differences as text.
    """
    topics = []
    for difference in differences[:_DESCRIBED]:
        said = "; ".join(map(_describeView, difference.views))
        topics.append(f"{difference.topic}: {said}")
    more = len(differences) - _DESCRIBED
    if more > 0:
        topics.append(f"and {more} topics more")
    return ". ".join(topics)


def _describeView(view: SubscriptionView) -> str:
    what = "not at all" if view.expression is None else repr(view.expression)
    if view.expressionType not in (None, TAG):
        what = f"{view.expressionType} {what}"
    more = view.members - len(view.clientIds)
    return f"{what} by {', '.join(view.clientIds)}{f' and {more} more' if more else ''}"


def _view(wanted: Iterable[SubscriptionData]) -> View:
    newest: dict[str, SubscriptionData] = {}
    for each in wanted:
        known = newest.get(each.topic)
        if known is None or each.subVersion > known.subVersion:
            newest[each.topic] = each
    entries = set(map(_entry, newest.values()))
    if len(entries) > _TOPICS:
        ordered = sorted(entries)
        rest = ("", "", _digest(repr(ordered[_TOPICS:])))
        entries = {*ordered[:_TOPICS], rest}
    return frozenset(entries)


def _entry(wanted: SubscriptionData) -> tuple[str, str, str]:
    kind = wanted.expressionType or TAG
    text = wanted.subString
    if kind == TAG:
        if "||" in text:
            # Order and spaces do not matter.
            text = " || ".join(sorted({each.strip() for each in text.split("||")} - {""}))
        text = text.strip() or EVERYTHING
    return _short(wanted.topic), _short(kind), _short(text)


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}... ({_digest(text)})"


def _digest(text: str) -> str:
    return blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
