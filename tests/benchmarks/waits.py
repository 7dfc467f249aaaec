"""How soon a wait ends: from a server that answers to its being called ready, and from one that dies to its being called dead.

On the embedded lab. Prints a table and one line with the result last; exit 1 where a goal is missed. usage: waits.py [ROUNDS]
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1] / "e2e"), str(HERE.parents[2])]

from controller import Controller  # noqa: E402 - found through the line above
from scene import Scene  # noqa: E402

READY_S, DEAD_S = 0.5, 2.0
LOAD_S = "3"


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
            return int(answer.status) == 200
    except OSError:
        return False


def ended(bundle: Path, state: str) -> float | None:
    """When (unix s) the wait came to `state`."""
    events = bundle / "events.jsonl"
    lines = events.read_text().splitlines() if events.exists() else []
    found = [event["time"] for event in map(json.loads, lines) if (event["action"], event["state"]) == ("wait", state)]
    return float(found[0]) if found else None


def newest(scene: Scene) -> Path:
    return max((scene.folder / "logs").iterdir())


def ready(scene: Scene, port: int) -> float:
    """Seconds from the first good answer of /health to the end of the wait, with the token that it asks for."""
    controller = Controller(scene, "ready", "deploy-profiling", "--tokens", "64", "--json")
    while not healthy(port):
        time.sleep(0.01)
    since = time.time()
    if controller.end().code:
        raise SystemExit(controller.err)
    at = ended(newest(scene), "ok")
    scene.invoke("rollback")
    assert at is not None  # the command ended well
    return at - since


def dead(scene: Scene, home: Path) -> float:
    """Seconds from the end of a server that loads to its being called dead."""
    controller = Controller(scene, "dead", "deploy-profiling", "--tokens", "64", "--json")
    controller.until_begun("Wait for a token")
    time.sleep(0.5)
    record = json.loads((home / ".local/state/eaglelab/server.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    since = time.time()
    controller.end()
    at = ended(newest(scene), "failed")
    if at is None:
        raise SystemExit(f"nobody called it dead:\n{controller.err}")
    return at - since


def main(rounds: int) -> int:
    os.environ.setdefault("PYTHONPATH", "")
    with tempfile.TemporaryDirectory(prefix="eaglelab-bench-") as name:
        scene = Scene.make(Path(name))
        scene.invoke("lab-up", "--load-seconds", LOAD_S)
        try:
            lab = json.loads((scene.folder / ".lab/lab.json").read_text())
            rows = {
                "ready": [ready(scene, lab["server_port"]) for _ in range(rounds)],
                "dead": [dead(scene, Path(lab["home"])) for _ in range(rounds)],
            }
        finally:
            scene.invoke("lab-down")
    print(f"{'said':8s} {'min s':>8s} {'median s':>9s} {'max s':>8s}")
    for said, times in rows.items():
        print(f"{said:8s} {min(times):8.3f} {statistics.median(times):9.3f} {max(times):8.3f}")
    worst_ready, worst_dead = max(rows["ready"]), max(rows["dead"])
    print(
        f"ready said after {worst_ready:.2f} s (goal {READY_S} s), dead after {worst_dead:.2f} s (goal {DEAD_S} s), worst of {rounds}"
    )
    return 0 if worst_ready < READY_S and worst_dead < DEAD_S else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
