# SPDX-License-Identifier: Apache-2.0
"""
RocketMQ's remoting on Twisted, the same for name server, broker and clients::

      bytes                                                        bytes
        |                                                            ^
        v                                                            |
    Connection --- request ---> hooks --> processorTable --> answer -+
     (protocol)                           code -> (processor, executor)
        |
        +--------- response --> responseTable --> the Deferred of request()
                                opaque -> Deferred

L{Remoting<txrocket.remoting.remoting.Remoting>} holds what all connections of a
program share; a L{RemotingProtocol<txrocket.remoting.protocol.RemotingProtocol>}
is one connection, dialled or accepted; either end may call the other.
L{Peers<txrocket.remoting.peers.Peers>} keeps the dialled ones by address.
"""
