"""The command line as ``python -m mklearn``."""

from mklearn.cli import main

main()
