"""Puts the guard into every Python that the tests start (this folder is on their PYTHONPATH)."""

import loopback_guard

loopback_guard.install()
