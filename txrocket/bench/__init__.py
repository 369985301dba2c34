# SPDX-License-Identifier: Apache-2.0
"""
C{txrocket bench}: how fast a cluster is, as a producer and a consumer see it.
"""
