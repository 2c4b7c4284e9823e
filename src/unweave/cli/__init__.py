"""The command line: parse, call, print. Results go to standard output, progress and warnings to standard error."""

from unweave.cli import auditing, listing, records, reporting, running, studies, tuning, verifying
from unweave.cli.app import main

__all__ = ["auditing", "listing", "main", "records", "reporting", "running", "studies", "tuning", "verifying"]
