# SPDX-License-Identifier: Apache-2.0
"""
Columns: messages as Arrow arrays, with their properties and schema.
"""
