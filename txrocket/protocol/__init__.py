# SPDX-License-Identifier: Apache-2.0
"""
RocketMQ's wire and record formats as pure bytes: no reactor, no sockets, no clock.
L{txrocket.remoting} on Twisted, the blocking client and the tests all use this code.
"""
