# SPDX-License-Identifier: Apache-2.0
"""
Messages that are delivered later: retries, delay levels and timers.  Each is parked in a
system topic and then appended to its real one.
"""
