"""One load, several step counts: request ids choose among those captured, in the real workers of the embedded lab.

The lab's model says which drafts are right at every position, so each cycle can be worked out: the steps it ran with, what
it accepted, and how long its phases took.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from lab_kinds import Kind, ask, phases_of
from scene import ROOT, Scene

from eaglelab.lab.model import read_model
from eaglelab.lab.standin.acceptance import Acceptance
from eaglelab.profile.records import CycleBlock, read_records
from eaglelab.server.prompts import prompt

CAPTURED = (1, 2, 5)
DEPLOYMENT = 32
"""Tokens of the request that a deployment sends itself."""
ADAPTIVE = ("speculative-adaptive: true", "speculative-adaptive-config: steps.json")
KINDS = (
    Kind("0.5.12 v1", "0.5.12", "EAGLEWorker", flags=(*ADAPTIVE, "disable-overlap-schedule: true")),
    Kind("0.5.12 v2", "0.5.12", "EAGLEWorkerV2", flags=ADAPTIVE, late=True),
    Kind("0.5.16", "0.5.16", "EAGLEWorkerV2", flags=ADAPTIVE, late=True),
    Kind("0.5.23", "0.5.23", "EAGLEWorkerV2", flags=ADAPTIVE, late=True),
)


def launched(kind: Kind) -> int:
    """0.5.15 to 0.5.18 cannot capture more than they were started with."""
    return max(CAPTURED) if kind.version == "0.5.16" else 2


@dataclass(frozen=True)
class Asked:
    """A request: its id, its length, and the steps that it gets in the end (None: those of the launch)."""

    rid: str
    tokens: int
    steps: int | None

    @property
    def measured(self) -> bool:
        return "p=0/" not in self.rid


REQUESTS = (
    Asked("k=1/one", 150, 1),
    Asked("k=5/p=1/five", 200, 5),
    Asked("p=0/k=1/unmeasured", 60, 1),
    Asked("k=2/two", 120, 2),
    Asked("k=5/again", 60, 5),
    Asked("k=7/not-captured", 90, None),
    Asked("plain", 60, None),
)


@dataclass(frozen=True)
class Taken:
    """What a deployment and `REQUESTS` left behind; `raw` are the block records as they were written."""

    kind: Kind
    answers: list[dict[str, Any]]
    blocks: list[CycleBlock]
    raw: list[dict[str, Any]]
    log: str


def take(scene: Scene, kind: Kind) -> Taken:
    """Deploy, send the requests one after another, flush the probe, roll back."""
    steps = scene.folder / "steps.json"
    config = {"candidate_steps": list(CAPTURED), "ema_alpha": 0.8, "update_interval": 4}
    steps.write_text(json.dumps(config if kind.version == "0.5.12" else {"1": config}))
    lines = ["      flags:", *(f"        {flag}" for flag in kind.flags)]
    lines += ["      env:", "        EAGLE3_STEPS_FROM_RID: '1'"]
    inventory = "\n".join([(ROOT / "inventory.yaml").read_text().rstrip("\n"), *lines, ""])
    assert "num_steps: 2" in inventory
    inventory = inventory.replace("num_steps: 2", f"num_steps: {launched(kind)}")
    (scene.folder / "inventory.yaml").write_text(inventory.replace("steps.json", str(steps)))
    home = scene.folder / ".lab/host/home"
    log = home / "logs/sglang.log"
    logged = log.stat().st_size if log.exists() else 0
    scene.invoke("deploy-profiling", "--tokens", str(DEPLOYMENT), "--json")
    port = json.loads((scene.folder / ".lab/lab.json").read_text())["server_port"]
    answers = [ask(port, prompt(1 + i), asked.tokens, asked.rid) for i, asked in enumerate(REQUESTS)]
    # A pause of 0.25 s, by the server's own clock, and the next prefill makes the probe write what it holds.
    time.sleep(0.3)
    ask(port, "Hello", 1, "p=0/flush")
    files = sorted((home / ".local/state/eaglelab/runs").glob("*/probe/*.jsonl"), key=lambda file: file.stat().st_mtime)
    lines = files[-1].read_text().splitlines()
    said = log.read_bytes()[logged:].decode()
    scene.invoke("rollback")
    records = read_records(lines)
    assert records.problems == []
    raw = [record for record in map(json.loads, lines) if record["kind"] == "block"]
    return Taken(kind, answers, records.blocks, raw, said)


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def taken(request: pytest.FixtureRequest, scene_of: Callable[[str], Scene]) -> Taken:
    return take(scene_of(request.param.version), request.param)


def cycles_until_the_switch(kind: Kind) -> int:
    """Before 0.5.13 the steps change once a cycle has been read, which overlapping does one cycle late."""
    if kind.version != "0.5.12":
        return 0
    return 2 if kind.late else 1


def replay(kind: Kind, text: str, tokens: int, steps: int, before: int) -> list[tuple[int, int]]:
    """Steps and correct drafts of each cycle of one request, as the GPU sees them; the request before ran with `before`."""
    model = read_model(None).acceptance
    acceptance = Acceptance(model.seed, tuple(model.survival))
    position, cycles, over = 1, [], False
    while not over:
        over = position >= tokens  # one more cycle is under way before a late scheduler knows
        if over and not kind.late:
            break
        active = before if len(cycles) < cycles_until_the_switch(kind) else steps
        correct = acceptance.correct_drafts(text, position, active)
        if not kind.v2:
            correct = min(correct, tokens - position - 1)  # v1 cuts the last cycle at the limit
        cycles.append((active, correct))
        position += correct + 1
    return cycles


def replay_all(kind: Kind) -> list[tuple[Asked, list[tuple[int, int]]]]:
    """Everything that decoded: the server's own warm-up, the deployment's request, then `REQUESTS`."""
    own = [(Asked("", 8, None), "The capital city of France is"), (Asked("", DEPLOYMENT, None), prompt(0))]
    everything = [*own, *((asked, prompt(1 + i)) for i, asked in enumerate(REQUESTS))]
    before, done = launched(kind), []
    for asked, text in everything:
        steps = asked.steps or launched(kind)
        done.append((asked, replay(kind, text, asked.tokens, steps, before)))
        before = steps
    return done


def test_every_request_gets_its_tokens(taken: Taken) -> None:
    assert [len(answer["output_ids"]) for answer in taken.answers] == [asked.tokens for asked in REQUESTS]


def test_the_blocks_show_the_steps_asked_for_and_what_each_accepts(taken: Taken) -> None:
    expected = Counter(cycle for asked, cycles in replay_all(taken.kind) if asked.measured for cycle in cycles)
    counted: Counter[tuple[int, int]] = Counter()
    for block in taken.blocks:
        assert block.identity.worker == taken.kind.worker
        counted.update({(block.steps, correct): count for correct, count in enumerate(block.correct_hist)})
    assert {steps for steps, _ in expected} == set(CAPTURED)
    assert +counted == expected


def test_event_times_agree_with_the_model_within_two_per_cent_at_every_step_count(taken: Taken) -> None:
    for steps in CAPTURED:
        blocks = [block for block in taken.blocks if block.steps == steps]
        assert sum(block.cycles for block in blocks) > 30
        for phase, cost in phases_of(taken.kind, steps).items():
            times = [ms for block in blocks for ms in block.event_ms[phase]]
            assert sum(times) / len(times) == pytest.approx(cost, rel=0.02, abs=1e-6), (steps, phase)


def test_requests_that_are_not_measured_appear_under_skipped_only(taken: Taken) -> None:
    skipped = sum(len(cycles) for asked, cycles in replay_all(taken.kind) if not asked.measured)
    assert skipped > 20
    assert sum(block.skipped for block in taken.blocks) == skipped


def test_every_record_says_what_was_asked_for_and_why_it_was_not_given(taken: Taken) -> None:
    counted: Counter[tuple[int | None, int, str | None]] = Counter()
    for record in taken.raw:
        assert sum(asked["cycles"] for asked in record["steps_from_rid"]) == record["decode_cycles"]
        assert {asked["active"] for asked in record["steps_from_rid"]} == {record["steps"]}
        for asked in record["steps_from_rid"]:
            counted[asked["wanted"], asked["active"], asked["why"]] += asked["cycles"]
    expected: Counter[tuple[int | None, int, str | None]] = Counter()
    for asked, cycles in replay_all(taken.kind):
        wanted = int(asked.rid.partition("k=")[2][0]) if "k=" in asked.rid else None
        for active, _ in cycles if asked.measured else []:
            why = "not captured" if wanted == 7 else None if wanted in (None, active) else "not yet"
            expected[wanted, active, why] += 1
    assert counted == expected
    assert expected[7, launched(taken.kind), "not captured"] > 20


def test_the_log_says_once_what_cannot_be_had(taken: Taken) -> None:
    assert taken.log.count(f"EAGLE3_STEPS active: launched with {launched(taken.kind)} steps, captured 1,2,5") == 1
    assert taken.log.count("EAGLE3_STEPS k=7 served unchanged: not captured") == 1


def test_the_controllers_own_policy_moves_nothing(taken: Taken) -> None:
    assert "Adaptive spec params updated" not in taken.log
    switches = taken.log.count("Switch adaptive runtime state")
    assert switches == (6 if launched(taken.kind) == 2 else 5)  # to 1, 5, 1, 2, 5, and back to 2
