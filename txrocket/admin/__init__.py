# SPDX-License-Identifier: Apache-2.0
"""
Administration of brokers and name servers.
"""
