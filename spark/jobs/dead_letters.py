# SPDX-License-Identifier: Apache-2.0
"""
The job dead-letters for C{spark-submit}: see C{txrocket-pipeline dead-letters --help}.
"""

import sys

from pyspark_rocketmq.jobs.command import main

if __name__ == "__main__":
    sys.exit(main(["dead-letters", *sys.argv[1:]]))
