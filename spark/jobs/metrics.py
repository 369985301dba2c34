# SPDX-License-Identifier: Apache-2.0
"""
The job metrics for C{spark-submit}: see C{txrocket-pipeline metrics --help}.
"""

import sys

from pyspark_rocketmq.jobs.command import main

if __name__ == "__main__":
    sys.exit(main(["metrics", *sys.argv[1:]]))
