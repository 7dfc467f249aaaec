"""What a host costs the controller: time and memory of one command on 1, 16, 64 (256) loopback hosts at once.

Prints a table and one line with what follows for 1,000 hosts last. The hosts share this machine, so the wall time is
theirs as much as the controller's; its CPU time and memory are its own. usage: hosts.py [--most N] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from loopback_hosts import farm
from rivals import Rival, ours

COUNTS = (1, 16, 64, 256)
THOUSAND = 1000


@dataclass(frozen=True)
class Cost:
    """One command on so many hosts: wall and CPU seconds, and the most memory (MB) that the controller had."""

    hosts: int
    wall: float
    cpu: float
    peak: float


def run(rival: Rival, hosts: int) -> Cost:
    """Ends the benchmark where the command fails."""
    with (rival.cwd / "said").open("wb") as said:
        began = time.monotonic()
        process = subprocess.Popen(rival.command, cwd=rival.cwd, env=rival.env, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(rival.command)} failed: {(rival.cwd / 'said').read_text()[-3000:]}")
    return Cost(hosts, wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def best(rival: Rival, hosts: int, rounds: int) -> Cost:
    """The least of each figure over `rounds` runs, after one that is not counted."""
    run(rival, hosts)
    runs = [run(rival, hosts) for _ in range(rounds)]
    return Cost(hosts, min(each.wall for each in runs), min(each.cpu for each in runs), min(each.peak for each in runs))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    costs = []
    with tempfile.TemporaryDirectory(prefix="eaglelab-hosts-") as name:
        folder = Path(name)
        (folder / "controller").mkdir()
        for count in (count for count in COUNTS if count <= options.most):
            with farm(folder / f"farm-{count}", count) as hosts:
                rival = ours(folder, hosts, hosts.hosts)
                all_at_once = Rival(rival.name, [*rival.command, "--forks", str(count)], rival.cwd, rival.env)
                costs.append(best(all_at_once, count, options.rounds))
    print(f"{'hosts':>5s} {'wall s':>8s} {'CPU s':>8s} {'peak MB':>8s} {'CPU ms/host':>12s} {'MB/host':>8s}")
    first, last = costs[0], costs[-1]
    for cost in costs:
        more = max(cost.hosts - 1, 1)
        ms, mb = 1000 * (cost.cpu - first.cpu) / more, (cost.peak - first.peak) / more
        shown = f"{ms:12.1f} {mb:8.2f}" if cost is not first else ""
        print(f"{cost.hosts:5d} {cost.wall:8.2f} {cost.cpu:8.2f} {cost.peak:8.1f} {shown}")
    if last is first:
        return 0
    cpu, memory = (last.cpu - first.cpu) / (last.hosts - 1), (last.peak - first.peak) / (last.hosts - 1)
    print(
        f"{THOUSAND:,} hosts, all at once: {first.cpu + THOUSAND * cpu:.0f} s of CPU and {first.peak + THOUSAND * memory:.0f} MB here "
        f"({1000 * cpu:.0f} ms and {memory:.2f} MB a host)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
