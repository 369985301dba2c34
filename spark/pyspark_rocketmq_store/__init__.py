# SPDX-License-Identifier: Apache-2.0
"""
The package by which Spark finds C{format("rocketmq-store")}: Spark uses one C{DefaultSource}
of each module whose name begins with C{pyspark_}.
"""

from pyspark_rocketmq.storefiles.source import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
