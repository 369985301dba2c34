# SPDX-License-Identifier: Apache-2.0
"""
The tables in C{config/}: topics, subscription groups, consumer offsets, consumer filters.
"""
