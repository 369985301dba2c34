# SPDX-License-Identifier: Apache-2.0
"""
C{make bench}: every benchmark, one after the other.

Figures are CPU microseconds of the process under test.  Machines differ and are shared, so
only the ratios within one run can be compared.
"""

from __future__ import annotations

from benchmarks import broker, client, remoting, spark, store, timers, turns

if __name__ == "__main__":
    remoting.main()
    print()
    store.main()
    print()
    broker.main()
    print()
    timers.main()
    print()
    turns.main()
    print()
    client.main()
    print()
    spark.main()
