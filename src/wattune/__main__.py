"""`python -m wattune` is the command `wattune`."""

from wattune.cli.main import main

main()
