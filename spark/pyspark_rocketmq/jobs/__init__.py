# SPDX-License-Identifier: Apache-2.0
"""
Jobs on topics.  Each is a function, a command (C{txrocket-pipeline NAME}) and a file for
C{spark-submit} (C{spark/jobs})::

    archive        topics --> Parquet by topic and day, which later runs continue
    replay         Parquet --> topic, at a rate
    metrics        traffic, lag and delivery times, as tables and as a page with plots
    dead-letters   messages that consumers gave up, by group, topic and reason
    compact        the latest message of each key
"""
