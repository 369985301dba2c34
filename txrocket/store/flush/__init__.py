# SPDX-License-Identifier: Apache-2.0
"""
The way to the disk: syncs, checkpoints, and the callers that wait for them.
"""
