"""How long deploy-profiling takes beyond the load itself: whole process, on the embedded lab, load of 3 s.

Prints a table of the tasks, then one line with the result; exit 1 where the goal is missed. usage: deploy.py [ROUNDS]
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1] / "e2e"), str(HERE.parents[2])]

from scene import Scene  # noqa: E402 - found through the line above

GOAL_S = 8.0
LOAD_S = 3.0


def measure(scene: Scene) -> tuple[float, dict[str, float]]:
    """One deploy-profiling: wall time of the whole process, and seconds by action."""
    began = time.monotonic()
    done = scene.invoke("deploy-profiling", "--json")
    took = time.monotonic() - began
    events = (Path(done.json["bundle"]) / "events.jsonl").read_text().splitlines()
    tasks = {event["action"]: event["seconds"] for event in map(json.loads, events) if event["state"] == "ok"}
    scene.invoke("rollback")
    return took, tasks


def main(rounds: int) -> int:
    os.environ.setdefault("PYTHONPATH", "")
    by_action: dict[str, list[float]] = defaultdict(list)
    walls = []
    with tempfile.TemporaryDirectory(prefix="eaglelab-bench-") as folder:
        scene = Scene.make(Path(folder))
        scene.invoke("lab-up", "--load-seconds", str(LOAD_S))
        try:
            for _ in range(rounds):
                took, tasks = measure(scene)
                walls.append(took)
                for action, seconds in tasks.items():
                    by_action[action].append(seconds)
                by_action["(start-up, connection)"].append(took - sum(tasks.values()))
        finally:
            scene.invoke("lab-down")
    print(f"{'action':24s} {'min s':>8s} {'median s':>9s} {'max s':>8s}")
    for action, seconds in [*by_action.items(), ("whole process", walls)]:
        print(f"{action:24s} {min(seconds):8.3f} {statistics.median(seconds):9.3f} {max(seconds):8.3f}")
    worst = max(walls)
    print(
        f"deploy-profiling with a load of {LOAD_S:.0f} s: {statistics.median(walls):.2f} s median, {worst:.2f} s worst "
        f"of {rounds} (goal: under {GOAL_S:.0f} s)"
    )
    return 0 if worst < GOAL_S else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
