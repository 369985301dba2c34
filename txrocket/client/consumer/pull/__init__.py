# SPDX-License-Identifier: Apache-2.0
"""
Consumers that the application polls.
"""
