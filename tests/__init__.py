# SPDX-License-Identifier: Apache-2.0
"""
The tests.
"""

from hypothesis import settings

# A busy machine is no failure: time never decides a test.
settings.register_profile("txrocket", deadline=None)
settings.load_profile("txrocket")
