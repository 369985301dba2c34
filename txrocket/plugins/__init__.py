# SPDX-License-Identifier: Apache-2.0
"""
The drop-in package: a module that a third party installs into
C{txrocket/plugins/} of any folder on the path is found here, and loaded by
L{txrocket.server.launch.installedPlugins} when a broker starts.
"""

from twisted.plugin import pluginPackagePaths

__path__.extend(pluginPackagePaths(__name__))

__all__: list[str] = []
