# SPDX-License-Identifier: Apache-2.0
"""
Processors of messages: send, pull, query, send back, reply, end of a transaction.
"""
