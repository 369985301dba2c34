# SPDX-License-Identifier: Apache-2.0
"""
Apache RocketMQ 4.x in Python on Twisted.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
