# SPDX-License-Identifier: Apache-2.0
"""
Reading a broker's store files without a broker.
"""
