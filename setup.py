# SPDX-License-Identifier: Apache-2.0
"""
All about the package is in setup.cfg, but for the compiled helper, which setup.cfg
cannot name.  It is optional: where it cannot be built, the package works without it.
"""

from setuptools import Extension, setup

setup(ext_modules=[Extension("txrocket._speed", ["txrocket/_speed.c"], optional=True)])
