# SPDX-License-Identifier: Apache-2.0
"""
Reading topics: tables, streams, offsets, filter push-down.
"""
