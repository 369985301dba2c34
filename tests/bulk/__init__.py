# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.bulk}.
"""
