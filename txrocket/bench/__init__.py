# SPDX-License-Identifier: Apache-2.0
"""
C{txrocket bench}: measures a cluster with a producer and a consumer.
"""
