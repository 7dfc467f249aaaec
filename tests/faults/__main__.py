"""Breaks a host in one place at a time and sees that it can always be put back.

python tests/faults [--only KIND] [--point NAME] [--each N] [--seed N] [--jobs N] [--list]

Prints a table and a headline last; 1 if a point was lost. README.md says what a point is.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[1:1] = [str(TESTS.parent), *(str(TESTS / name) for name in ("guard", "e2e", "remote"))]

import loopback_guard  # noqa: E402 - found through the line above
from breaking import Progress, run  # noqa: E402
from play import Result  # noqa: E402
from points import Point, all_points, sample  # noqa: E402
from table import headline, loss, losses, table  # noqa: E402

__all__ = ["main"]


def progress_of(total: int) -> Progress:
    """A line that renews itself on a terminal, and every tenth point elsewhere."""

    def say(result: Result, done: int, lost: int) -> None:
        line = f"{done}/{total}, {lost} lost: {result.point.name}"
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line[:100]}", end="\n" if done == total else "", file=sys.stderr, flush=True)
        elif done % 10 == 0 or done == total:
            print(line, file=sys.stderr, flush=True)
        if result.wrong:
            print(f"\n{loss(result)}" if sys.stderr.isatty() else loss(result), file=sys.stderr, flush=True)

    return say


def chosen(options: argparse.Namespace) -> list[Point]:
    points = all_points()
    if options.only:
        points = [point for point in points if point.kind.startswith(options.only)]
    if options.point:
        points = [point for point in points if point.name == options.point]
    if options.each:
        points = sample(points, options.seed, options.each)
    if not points:
        raise SystemExit("no such point; --list shows them")
    # Slow kinds stand together in the table; mixed, two jobs end at about the same time.
    random.Random(options.seed).shuffle(points)
    return points


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests/faults", description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="KIND", help="a kind of fault, or how several begin: link, link.killed")
    parser.add_argument("--point", metavar="NAME", help="one point, by its name")
    parser.add_argument("--each", type=int, metavar="N", help="so many of every kind, chosen by the seed")
    parser.add_argument("--seed", type=int, default=0, help="order, and choice with --each (default 0)")
    parser.add_argument("--jobs", type=int, default=2, help="hosts that are broken at the same time (default 2)")
    parser.add_argument("--list", action="store_true", help="name the points and play none")
    options = parser.parse_args(argv)
    points = chosen(options)
    if options.list:
        print("\n".join(sorted(point.name for point in points)))
        return 0
    if not shutil.which("sshd") and not Path("/usr/sbin/sshd").exists():
        raise SystemExit("this needs OpenSSH's sshd: sh tests/ensure-sshd")
    loopback_guard.install()
    os.environ["PYTHONPATH"] = str(TESTS / "guard")
    print(f"seed {options.seed}: {len(points)} points, {options.jobs} at a time")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="eaglelab-faults-") as folder:
        results = run(points, Path(folder), min(options.jobs, len(points)), progress_of(len(points)))
    order = {kind: at for at, kind in enumerate(dict.fromkeys(point.kind for point in all_points()))}
    results.sort(key=lambda result: (order[result.point.kind], result.point.name))
    print(table(results))
    found = losses(results)
    if found:
        print(found)
    print(f"seed {options.seed}, {(time.monotonic() - began) / 60:.1f} minutes")
    print(headline(results))
    return int(any(result.wrong for result in results))


if __name__ == "__main__":
    sys.exit(main())
