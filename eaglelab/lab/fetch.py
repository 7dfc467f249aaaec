"""Fills the package cache of the lab ahead of time: python -m eaglelab.lab.fetch VERSION..."""

from __future__ import annotations

import sys

from eaglelab.errors import EaglelabError
from eaglelab.lab.provision import cache_folder, package_of

__all__ = ["main"]


def main(versions: list[str]) -> int:
    """0 if every release is in the cache in the end, 1 with the reason if not."""
    try:
        for version in versions:
            package_of(version, cache_folder(), print)
    except EaglelabError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
