"""`python -m trainyard`: the `trainyard` command where no script is on the PATH."""

from trainyard.cli import main

main()
