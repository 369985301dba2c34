# SPDX-License-Identifier: Apache-2.0
"""
The commit log, and the way of messages into it.
"""
