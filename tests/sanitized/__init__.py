# SPDX-License-Identifier: Apache-2.0
"""
The compiled helper under AddressSanitizer and UndefinedBehaviorSanitizer, and its fuzzer.
"""
