# SPDX-License-Identifier: Apache-2.0
"""
The job archive for C{spark-submit}: see C{txrocket-pipeline archive --help}.
"""

import sys

from pyspark_rocketmq.jobs.command import main

if __name__ == "__main__":
    sys.exit(main(["archive", *sys.argv[1:]]))
