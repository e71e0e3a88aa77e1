"""The command line: `musebench COMMAND`. One file a command; each parses, calls and prints.

A command's module is imported when that command runs, so `musebench --help` imports neither torch,
transformers nor numpy.
"""

from __future__ import annotations

from musebench.cli.group import CommandGroup, main, root

__all__ = ["CommandGroup", "main", "root"]
