# SPDX-License-Identifier: Apache-2.0
"""
The way of messages out of the store.
"""
