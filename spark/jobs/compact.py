# SPDX-License-Identifier: Apache-2.0
"""
The job compact for C{spark-submit}: see C{txrocket-pipeline compact --help}.
"""

import sys

from pyspark_rocketmq.jobs.command import main

if __name__ == "__main__":
    sys.exit(main(["compact", *sys.argv[1:]]))
