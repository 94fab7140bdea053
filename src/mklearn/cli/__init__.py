"""The command line: commands, what they do, and the tables that they read."""

from mklearn.cli.commands import main

__all__ = ["main"]
