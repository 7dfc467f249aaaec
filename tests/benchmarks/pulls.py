"""How long a log of 200 MB takes to come home, whole and when 1 MB was added, beside sftp and rsync; in turns.

Ours is masked line by line and compared by sha256 on both sides, which the others do not do. Prints a table and one line
last. usage: pulls.py [--mb N] [--rounds N]
"""

from __future__ import annotations

import argparse
import io
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[2])]

from loopback_hosts import Farm, farm  # noqa: E402 - found through the line above
from rich.console import Console  # noqa: E402 - found through the line above

from eaglelab.actions.pull import fetch  # noqa: E402 - found through the line above
from eaglelab.bundle import Bundle  # noqa: E402 - found through the line above
from eaglelab.context import Context, LogMark, Options  # noqa: E402 - found through the line above
from eaglelab.host import Host  # noqa: E402 - found through the line above
from eaglelab.remote.client import AgentClient  # noqa: E402 - found through the line above
from eaglelab.remote.endpoint import resolve_endpoint  # noqa: E402 - found through the line above
from eaglelab.remote.ssh import SshLink  # noqa: E402 - found through the line above
from eaglelab.say import Say  # noqa: E402 - found through the line above

LINE = "[2026-11-29 18:15:00 TP0] Decode batch, #running-req: 1, #token: 512, accept len: 2.41, gen throughput (token/s): 94.1"
MEGABYTE = 1 << 20


def ours(hosts: Farm, log: Path, to: Path, offset: int) -> None:
    found = hosts.hosts[0]
    entry = {"address": "127.0.0.1", "port": found.port, "user": hosts.user, "key": str(hosts.key), "ssh_config": False}
    host = Host.build(
        "h", {**entry, "known_hosts": str(hosts.known_hosts), "python": str(found.python), "log": str(log)}, {}, ""
    )
    client = AgentClient(SshLink("h", resolve_endpoint(host)), host.python)
    say = Say(Console(file=io.StringIO()))
    context = Context(host, client, Bundle(to, "bench", "h"), say, Options())
    try:
        fetch(context, LogMark(str(log), offset), "server.log")
    finally:
        client.close()


def by_sftp(hosts: Farm, log: Path, to: Path, offset: int) -> None:
    to.mkdir(exist_ok=True)
    get = "reget" if offset else "get"
    command = ["sftp", "-q", "-b", "-", *_ssh(hosts), "-P", str(hosts.hosts[0].port), f"{hosts.user}@127.0.0.1"]
    subprocess.run(command, input=f"{get} {log} {to}/server.log\n", text=True, check=True, stdout=subprocess.DEVNULL)


def by_rsync(hosts: Farm, log: Path, to: Path, offset: int) -> None:
    to.mkdir(exist_ok=True)
    ssh = " ".join(["ssh", *_ssh(hosts), "-p", str(hosts.hosts[0].port)])
    more = ["--append"] if offset else []
    subprocess.run(["rsync", *more, "-e", ssh, f"{hosts.user}@127.0.0.1:{log}", f"{to}/server.log"], check=True)


def _ssh(hosts: Farm) -> list[str]:
    return ["-F", "none", "-i", str(hosts.key), "-o", f"UserKnownHostsFile={hosts.known_hosts}"]


def measure(pull: Callable[[Farm, Path, Path, int], None], hosts: Farm, log: Path, to: Path) -> tuple[float, float]:
    """Seconds for the whole log, and for the 1 MB that it grew by meanwhile. It is then as long as before."""
    size = log.stat().st_size
    began = time.monotonic()
    pull(hosts, log, to, 0)
    whole = time.monotonic() - began
    with log.open("a") as file:
        file.write((LINE + "\n") * (MEGABYTE // (len(LINE) + 1)))
    began = time.monotonic()
    pull(hosts, log, to, size)
    tail = time.monotonic() - began
    with log.open("rb+") as file:
        file.truncate(size)
    shutil.rmtree(to)
    return whole, tail


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ways = {"eaglelab": ours, "sftp": by_sftp}
    if shutil.which("rsync"):
        ways["rsync"] = by_rsync
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory(prefix="eaglelab-bench-") as name, farm(Path(name) / "farm", 1) as hosts:
        log = hosts.hosts[0].home / "server.log"
        log.write_text((LINE + "\n") * (options.mb * MEGABYTE // (len(LINE) + 1)))
        for _ in range(options.rounds):
            for way, pull in ways.items():
                took[way].append(measure(pull, hosts, log, Path(name) / "home"))
    print(f"{'way':10s} {'whole s':>8s} {'MB/s':>6s} {'1 MB added, s':>14s}")
    medians = {way: [statistics.median(column) for column in zip(*times, strict=True)] for way, times in took.items()}
    for way, (whole, tail) in medians.items():
        print(f"{way:10s} {whole:8.2f} {options.mb / whole:6.0f} {tail:14.3f}")
    whole, tail = medians["eaglelab"]
    also = "" if "rsync" in ways else "; rsync is not installed here"
    print(
        f"a log of {options.mb} MB, masked and compared: {whole:.1f} s whole ({whole / medians['sftp'][0]:.1f}x sftp), {tail:.2f} s for 1 MB more{also}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
