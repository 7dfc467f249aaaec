"""Whether sweep ranks settings as the lab's cost model has them, and what one load for several step counts costs.

(a) `--runs` sweeps of K=1,2,3,5,10 and the baseline, each on a lab whose model has a seed of its own: the ranking is right
if the winner is the model's, and no two settings that are called different stand the other way round. Differences below
the smallest relevant one are ties. (b) Wall time beyond the measuring itself, for five step counts against one.

Prints tables, then one line with the result; exit 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1] / "e2e"), str(HERE.parents[2])]

from lab_kinds import Kind, phases_of  # noqa: E402 - found through the line above
from scene import Scene  # noqa: E402

from eaglelab.lab.model import DEFAULT_MODEL, read_model  # noqa: E402
from eaglelab.lab.standin.acceptance import Acceptance  # noqa: E402
from eaglelab.profile.ranking import MINIMUM_RELEVANT  # noqa: E402

STEPS = (1, 2, 3, 5, 10)
KIND = Kind("0.5.12", "0.5.12", "EAGLEWorkerV2", late=True)
GOAL_RATIO = 1.3
LOAD_S = 3.0
SMALL = ("--num-prompts", "6", "--repeats", "6", "--output-len", "120")
RESOLVING = ("--num-prompts", "32", "--repeats", "16", "--output-len", "240", "--no-probe")
"""So many rounds and tokens that the text's own scatter hides none of the model's differences above 3 %. Only unmeasured
requests are ranked, so none else is sent."""


def by_the_model() -> dict[int | None, float]:
    """Tokens a second of decode, by steps; None is the baseline."""
    model = read_model()
    accepted = Acceptance(model.acceptance.seed, tuple(model.acceptance.survival))
    rates: dict[int | None, float] = {None: 1000 / model.gpu_ms.plain}
    rates |= {k: 1000 * accepted.accept_length(k) / sum(phases_of(KIND, k).values()) for k in STEPS}
    return rates


@contextmanager
def lab(seed: int, load_s: float) -> Iterator[Scene]:
    """A project whose lab has that seed."""
    with tempfile.TemporaryDirectory(prefix="eaglelab-bench-") as folder:
        scene = Scene.make(Path(folder))
        model = yaml.safe_load(DEFAULT_MODEL.read_text(encoding="utf-8"))
        model["acceptance"]["seed"] = seed
        (scene.folder / "model.yaml").write_text(yaml.safe_dump(model))
        how = ("--load-seconds", str(load_s), "--model", str(scene.folder / "model.yaml"))
        scene.invoke("lab-up", "--sglang", KIND.version, *how)
        try:
            yield scene
        finally:
            scene.invoke("lab-down")


def ranking_of(seed: int) -> dict[str, Any]:
    with lab(seed, 0.3) as scene:
        counts = ",".join(map(str, STEPS))
        done = scene.invoke("sweep", "--steps", counts, "--seed", str(seed), *RESOLVING, "--json", timeout=600)
        (found,) = done.json["hosts"]["sim"]["rankings"]
        return dict(found["ranking"])


def wrong(ranking: dict[str, Any], model: dict[int | None, float]) -> list[str]:
    """What of a ranking is not as the model has it."""
    found = []
    best = max(model, key=lambda steps: model[steps])
    if ranking["winner"]["steps"] != best:
        found.append(f"the winner is {name(ranking['winner']['steps'])}")
    for first, second in itertools.combinations(ranking["settings"], 2):
        if first["group"] != second["group"] and model[second["steps"]] > model[first["steps"]] * (
            1 + MINIMUM_RELEVANT
        ):
            found.append(f"{name(first['steps'])} before {name(second['steps'])}")
    return found


def name(steps: int | None) -> str:
    return "baseline" if steps is None else f"K={steps}"


def rank_runs(runs: int) -> int:
    """Prints them; returns how many came out right."""
    model, rates, right = by_the_model(), defaultdict[int | None, list[float]](list), 0
    for seed in range(1, runs + 1):
        ranking = ranking_of(seed)
        for setting in ranking["settings"]:
            rates[setting["steps"]].append(setting["tok_s"])
        faults = wrong(ranking, model)
        right += not faults
        groups = " > ".join("=".join(name(key["steps"]) for key in group) for group in ranking["groups"])
        print(f"seed {seed:3d}  {'right' if not faults else 'WRONG'}  {groups}  {'; '.join(faults)}", flush=True)
    print(
        f"\n{'setting':10s} {'model tok/s':>12s} {'median':>8s} {'min':>8s} {'max':>8s}   (measured: prefill included)"
    )
    for steps, rate in sorted(model.items(), key=lambda item: -item[1]):
        seen = rates[steps]
        print(f"{name(steps):10s} {rate:12.1f} {statistics.median(seen):8.1f} {min(seen):8.1f} {max(seen):8.1f}")
    return right


def beyond_measuring(scene: Scene, steps: str) -> float:
    """Wall seconds of a whole sweep in one load, less those in which it measured."""
    began = time.monotonic()
    done = scene.invoke("sweep", "--steps", steps, "--no-baseline", *SMALL, "--json")
    took = time.monotonic() - began
    lines = (Path(done.json["bundle"]) / "events.jsonl").read_text().splitlines()
    events = [event for event in map(json.loads, lines) if event["state"] == "ok"]
    return took - sum(event["seconds"] for event in events if event["action"] == "measure")


def load_ratio(rounds: int) -> float:
    with lab(1, LOAD_S) as scene:
        five, one = [], []
        for _ in range(rounds):
            one.append(beyond_measuring(scene, "2"))
            five.append(beyond_measuring(scene, ",".join(map(str, STEPS))))
    for what, seconds in (("one step count", one), ("five in one load", five)):
        print(f"{what:18s} {statistics.median(seconds):6.2f} s beyond the measuring (median of {rounds})")
    return statistics.median(five) / statistics.median(one)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20, help="seeded sweeps to rank")
    parser.add_argument("--rounds", type=int, default=3, help="repeats of the comparison of wall times")
    options = parser.parse_args()
    os.environ.setdefault("PYTHONPATH", "")
    right = rank_runs(options.runs)
    print()
    ratio = load_ratio(options.rounds)
    print(
        f"\nsweep: {right} of {options.runs} rankings as the cost model has them (goal: all); five step counts in one load "
        f"take {ratio:.2f} times the wall time of one, beyond the measuring (goal: under {GOAL_RATIO})"
    )
    return 0 if right == options.runs and ratio < GOAL_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
