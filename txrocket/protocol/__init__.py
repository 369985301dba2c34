# SPDX-License-Identifier: Apache-2.0
"""
RocketMQ's wire and record formats as pure bytes: no reactor, no sockets, no
clock.  Whatever does I/O (the Twisted glue in L{txrocket.remoting}, a blocking
client, a test) drives the same code.
"""
