# SPDX-License-Identifier: Apache-2.0
"""
All about the package is in setup.cfg, but for the compiled module, which setup.cfg
cannot name.  It is optional: where it cannot be built, the package works without it.

With C{TXROCKET_STRICT=1} in the environment, as continuous integration sets it, a warning of the
compiler is an error, and an error ends the installation.  A user's installation never fails by
either: another compiler may have warnings of its own.
"""

import os
import shutil
import sysconfig

from setuptools import Extension, setup

compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
header = os.path.join(sysconfig.get_path("include"), "Python.h")
strict = bool(os.environ.get("TXROCKET_STRICT"))

setup(
    ext_modules=[
        Extension(
            "txrocket.bulk._compiled",
            ["txrocket/bulk/_compiled.c"],
            extra_compile_args=["-Wall", "-Wextra", "-Werror"] if strict else [],
            optional=not (strict and shutil.which(compiler) and os.path.exists(header)),
        )
    ]
)
