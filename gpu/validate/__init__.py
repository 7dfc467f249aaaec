"""Experiments on a running server, each against something known. `python -m gpu.validate --help`."""
