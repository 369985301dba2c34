# SPDX-License-Identifier: Apache-2.0
"""
Has Spark find C{format("rocketmq-store")} by itself: it takes one C{DefaultSource} of each
module whose name begins with C{pyspark_}.
"""

from pyspark_rocketmq.store import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
