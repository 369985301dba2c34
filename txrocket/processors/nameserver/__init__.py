# SPDX-License-Identifier: Apache-2.0
"""
The name server's processors: registration, routes, key-value configuration, settings.
"""
