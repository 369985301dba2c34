# SPDX-License-Identifier: Apache-2.0
"""
The job replay for C{spark-submit}: see C{txrocket-pipeline replay --help}.
"""

import sys

from pyspark_rocketmq.jobs.command import main

if __name__ == "__main__":
    sys.exit(main(["replay", *sys.argv[1:]]))
