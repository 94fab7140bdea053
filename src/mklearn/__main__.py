"""The command line as ``python -m mklearn``."""

from mklearn.cli.commands import main

main()
