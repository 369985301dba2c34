# SPDX-License-Identifier: Apache-2.0
"""
Jobs: what is done with topics again and again.  Each is a function, a command
(C{txrocket-pipeline NAME}) and a file for C{spark-submit} (C{spark/jobs})::

    archive        topics --> Parquet by topic and day, to be gone on with
    replay         Parquet --> topic, at a rate
    metrics        traffic, lag and delivery times, as tables and as a page with plots
    dead-letters   what nobody could deal with, by group, topic and reason
    compact        the latest message of each key
"""
