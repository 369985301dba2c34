# SPDX-License-Identifier: Apache-2.0
"""
Producers: sending, retrying, transactions, request and reply.
"""
