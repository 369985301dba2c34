# SPDX-License-Identifier: Apache-2.0
"""
The message store: RocketMQ 4.9.7's files, byte for byte::

    ROOT/
      lock  abort  checkpoint
      commitlog/00000000000000000000 ...          records, in order of arrival
      consumequeue/TOPIC/QUEUE/00000000000000000000 ...   where each queue's are
      index/20260101000000000 ...                 where the records of a key are
      config/topics.json ...                      tables
      epochFileCheckpoint  cut/  aside/           of a replica

It knows records, offsets and files; no network, no request codes, no rules of
business.  The commit log is the truth: everything else can be made from it.

    append --> CommitLog --> written --> Dispatcher --> ConsumeQueues, Index, arrived
                               |
                               +--> Flusher (fdatasync in a thread) --> flushed

The packages: L{log<txrocket.store.log>} takes messages in, L{queue<txrocket.store.queue>} and
L{index<txrocket.store.index>} find them, L{read<txrocket.store.read>} gives them out,
L{flush<txrocket.store.flush>} brings them to the disk, L{files<txrocket.store.files>} is the
operating system, L{replica<txrocket.store.replica>} follows the log of a master,
L{damage<txrocket.store.damage>} and L{verify<txrocket.store.verify>} find faults.  All state
belongs to the reactor thread; another thread only waits for disks.
"""
