# SPDX-License-Identifier: Apache-2.0
"""
What is done in each pairing; see L{tests.interop.cells}.  The order of these modules is
the order of the table's rows.
"""

from tests.interop.scenarios import sending  # isort: skip
from tests.interop.scenarios import receiving  # isort: skip
from tests.interop.scenarios import content  # isort: skip
from tests.interop.scenarios import delivery  # isort: skip
from tests.interop.scenarios import wire  # isort: skip
from tests.interop.scenarios import tools  # isort: skip
from tests.interop.scenarios import stores  # isort: skip

__all__ = ["content", "delivery", "receiving", "sending", "stores", "tools", "wire"]
