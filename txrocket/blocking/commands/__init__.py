# SPDX-License-Identifier: Apache-2.0
"""
Commands that need a cluster, and no reactor.
"""
