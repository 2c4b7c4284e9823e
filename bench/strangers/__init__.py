"""The suite of strangers: small tasks that no default was made for. `python -m bench.strangers --help`."""
