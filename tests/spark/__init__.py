# SPDX-License-Identifier: Apache-2.0
"""
Tests for the package pyspark_rocketmq.  Modules that are not named C{test_...} need Spark,
and are run by C{make test-spark}.
"""
