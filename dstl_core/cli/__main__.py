"""``python -m dstl_core.cli``."""

from dstl_core.cli.app import main

main()
