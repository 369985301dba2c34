# SPDX-License-Identifier: Apache-2.0
"""
Random damage to the files of a broker, and what becomes of it.

A folder is made once by a working broker, in two variants: it was stopped, or it ended as by
C{kill -9}.  Each case damages one file of a copy and works with it::

    template -> one damage -> start -> pulls, push consumer, keys, sends -> stop -> verify
                                |        |                                            |
                                +--------+------------ what was told -----------------+

    python -m tests.damage --cases 2000         make test-damage
    python -m tests.damage --seed 7 --case 42   one case again, with all that was told
"""
