"""How long one job takes with Ansible, pyinfra and this project: whole processes on loopback hosts, in turns.

Prints a table and one line with the result last; exit 1 where a goal is missed. Ansible and pyinfra are installed into
a folder that is removed again. usage: automation.py [--rounds N] [--tools FOLDER]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from loopback_hosts import MOST, ROOT, Farm, farm
from rivals import Rival, ansible, environment, install, ours, pyinfra

GOALS = {1: {"pyinfra": 3, "Ansible": 10}, MOST: {"pyinfra": 2, "Ansible": 20}}
"""How many times as fast as each of them this project is to be, by number of hosts."""
LIST_S = 0.3


@dataclass
class Row:
    """Wall times (s) of one tool on so many hosts."""

    hosts: int
    tool: str
    walls: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.walls)


def timed(rival: Rival, farm: Farm) -> float:
    """Wall time (s) of one run. Ends the benchmark where the job was not done, or left a worker changed."""
    began = time.monotonic()
    done = rival.run()
    took = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"{rival.name} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    if not farm.untouched():
        raise SystemExit(f"{rival.name} left a worker changed")
    return took


def measure(rivals: list[Rival], farm: Farm, hosts: int, rounds: int) -> list[Row]:
    """All tools in turns, so that what else the machine does meets all of them; the first round is not counted."""
    rows = [Row(hosts, rival.name) for rival in rivals]
    for number in range(rounds + 1):
        for rival, row in zip(rivals, rows, strict=True):
            took = timed(rival, farm)
            if number:
                row.walls.append(took)
            print(f"  {hosts:2d} hosts, round {number}: {rival.name} {took:.2f} s", file=sys.stderr)
    return rows


def list_commands(folder: Path, rounds: int) -> Row:
    """`invoke --list`."""
    row = Row(0, "invoke --list")
    env = environment(folder, PYTHONPATH=str(ROOT))
    command = [str(Path(sys.executable).with_name("invoke")), "--list"]
    for number in range(2 * rounds + 1):
        began = time.monotonic()
        subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL)
        if number:
            row.walls.append(time.monotonic() - began)
    return row


def verdict(rows: list[Row], listing: Row) -> tuple[list[str], bool]:
    """What is told of each goal, and whether all are met. Ratios are of runs of one round: what else the machine did met both."""
    told, met = [], listing.median < LIST_S
    for hosts, goals in GOALS.items():
        by_tool = {row.tool: row.walls for row in rows if row.hosts == hosts}
        for tool, times in goals.items():
            rounds = zip(by_tool[tool], by_tool["eaglelab"], strict=True)
            ratio = statistics.median(theirs / our_own for theirs, our_own in rounds)
            told.append(f"{ratio:.1f}x {tool} on {hosts} (goal {times}x)")
            met &= ratio >= times
    return told, met


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tools", type=Path, help="programs of Ansible and pyinfra that are there already")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="eaglelab-bench-") as name:
        folder = Path(name)
        (folder / "controller").mkdir()
        bin_ = options.tools or install(folder / "tools")
        with farm(folder / "farm", MOST) as hosts:
            for count in GOALS:
                some = hosts.hosts[:count]
                rivals = [
                    ours(folder, hosts, some),
                    pyinfra(folder, hosts, some, bin_),
                    ansible(folder, hosts, some, bin_),
                ]
                rows += measure(rivals, hosts, count, options.rounds)
        listing = list_commands(folder, options.rounds)
    print(f"{'hosts':>5s}  {'tool':14s} {'min s':>8s} {'median s':>9s} {'max s':>8s}")
    for row in [*rows, listing]:
        print(f"{row.hosts or '':>5}  {row.tool:14s} {min(row.walls):8.3f} {row.median:9.3f} {max(row.walls):8.3f}")
    told, met = verdict(rows, listing)
    print(f"as fast as: {'; '.join(told)}; invoke --list {listing.median:.2f} s (goal {LIST_S} s)")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
