# SPDX-License-Identifier: Apache-2.0
"""
What is done for each request: one module per kind.  A processor reads the
request, asks the rules in L{txrocket.broker} or L{txrocket.nameserver}, and
answers.
"""
