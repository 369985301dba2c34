# SPDX-License-Identifier: Apache-2.0
"""
The push consumer: messages are pulled in the background and handed to a listener.
"""
