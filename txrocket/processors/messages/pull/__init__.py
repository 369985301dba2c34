# SPDX-License-Identifier: Apache-2.0
"""
Serves consumers: gives them messages of the store.

The modules::

    pull          one pull, by all rules
    pulltogether  many pulls that find messages
    pullchecks    whether a consumer may pull
"""

from __future__ import annotations

from txrocket.processors.messages.pull.pull import PullProcessor

__all__ = ["PullProcessor"]
