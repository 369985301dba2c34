# SPDX-License-Identifier: Apache-2.0
"""
The compiled module under AddressSanitizer and UndefinedBehaviorSanitizer, and its fuzzer.
"""
