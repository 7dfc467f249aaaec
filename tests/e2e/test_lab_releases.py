"""The probe in the real worker of each kind of release, end to end on the embedded lab.

The lab's model says which drafts are right, so what the probe should have counted can be worked out request by request.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lab_kinds import Kind, ask, phases_of
from scene import ROOT, Scene, picture

from eaglelab.lab.model import read_model
from eaglelab.lab.standin.acceptance import Acceptance
from eaglelab.profile.records import CycleBlock, Records, read_records
from eaglelab.server.prompts import prompt

STEPS = 2
TOKENS = 300
FOUR = (120, 150, 200, 240)
"""Tokens of four requests that run together and end one by one."""


KINDS = (
    Kind("0.5.9 v1", "0.5.9", "EAGLEWorker"),
    Kind("0.5.9 v2", "0.5.9", "EAGLEWorkerV2", env=("SGLANG_ENABLE_SPEC_V2: '1'",), late=True),
    Kind("0.5.12 v1", "0.5.12", "EAGLEWorker", flags=("disable-overlap-schedule: true",)),
    Kind("0.5.12 v2", "0.5.12", "EAGLEWorkerV2", late=True),
    Kind("0.5.16", "0.5.16", "EAGLEWorkerV2", late=True),
    Kind("0.5.16 without overlap", "0.5.16", "EAGLEWorkerV2", flags=("disable-overlap-schedule: true",)),
    Kind("0.5.23", "0.5.23", "EAGLEWorkerV2", late=True),
)
ADAPTIVE = Kind(
    "0.5.12 v1 adaptive",
    "0.5.12",
    "EAGLEWorker",
    flags=(
        "disable-overlap-schedule: true",
        "speculative-adaptive: true",
        "speculative-adaptive-config: steps.json",
    ),
)


@dataclass(frozen=True)
class Taken:
    """What a deployment and four more requests left behind."""

    kind: Kind
    profile: dict[str, Any]
    records: Records
    answers: list[dict[str, Any]]
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def blocks(self) -> list[CycleBlock]:
        return self.records.blocks

    @property
    def requests(self) -> list[tuple[str, int]]:
        """Prompt and length of all that decoded: the server's own warm-up, the deployment's, the four."""
        four = [(prompt(1 + number), tokens) for number, tokens in enumerate(FOUR)]
        return [("The capital city of France is", 8), (prompt(0), TOKENS), *four]


def take(scene: Scene, kind: Kind) -> Taken:
    """Deploy, send four requests at once, flush the probe, roll back."""
    more = [*(["      flags:"] if kind.flags else []), *(f"        {flag}" for flag in kind.flags)]
    more += [*(["      env:"] if kind.env else []), *(f"        {variable}" for variable in kind.env)]
    inventory = "\n".join([(ROOT / "inventory.yaml").read_text().rstrip("\n"), *more, ""])
    steps = scene.folder / "steps.json"
    steps.write_text(json.dumps({"candidate_steps": [1, 2, 5], "ema_alpha": 0.8, "update_interval": 4}))
    (scene.folder / "inventory.yaml").write_text(inventory.replace("steps.json", str(steps)))
    home = scene.folder / ".lab/host/home"
    package = home / "sglang/python/sglang"
    before = picture(package)
    deploy = scene.invoke("deploy-profiling", "--tokens", str(TOKENS), "--json")
    port = json.loads((scene.folder / ".lab/lab.json").read_text())["server_port"]
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(ask, port, prompt(1 + number), tokens, f"four-{number}") for number, tokens in enumerate(FOUR)
        ]
        answers = [job.result() for job in jobs]
    # A pause of 0.25 s, by the server's own clock, and the next prefill makes the probe write what it holds.
    time.sleep(0.3)
    ask(port, "Hello", 1, "p=0/flush")
    files = sorted((home / ".local/state/eaglelab/runs").glob("*/probe/*.jsonl"), key=lambda file: file.stat().st_mtime)
    records = read_records(files[-1].read_bytes().splitlines())
    profile = json.loads((Path(deploy.json["bundle"]) / "profile.json").read_text())
    scene.invoke("rollback")
    return Taken(kind, profile, records, answers, before, picture(package))


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def taken(request: pytest.FixtureRequest, scene_of: Callable[[str], Scene]) -> Taken:
    return take(scene_of(request.param.version), request.param)


@pytest.fixture(scope="module")
def adaptive(scene_of: Callable[[str], Scene]) -> Taken:
    """0.5.12 v1, whose own policy chooses among 1, 2 and 5 steps."""
    return take(scene_of(ADAPTIVE.version), ADAPTIVE)


def replay(acceptance: Acceptance, kind: Kind, text: str, tokens: int) -> list[int]:
    """The correct drafts of each cycle of one request, as the GPU sees them. The first token is the prefill's."""
    position, cycles = 1, []
    while position < tokens:
        correct = acceptance.correct_drafts(text, position, STEPS)
        if not kind.v2:
            correct = min(correct, tokens - position - 1)  # v1 cuts the last cycle at the limit
        cycles.append(correct)
        position += correct + 1
    if kind.late:
        # The next cycle is under way before the scheduler has read that this one was the last.
        cycles.append(acceptance.correct_drafts(text, position, STEPS))
    return cycles


def test_the_expected_worker_ran_on_the_expected_release(taken: Taken) -> None:
    said = {(block.identity.worker, block.identity.sglang) for block in taken.blocks}
    assert said == {(taken.kind.worker, taken.kind.version)}
    assert taken.records.problems == []


def test_event_times_agree_with_the_cost_model_within_two_per_cent(taken: Taken) -> None:
    (setting,) = taken.profile["settings"]
    expected = phases_of(taken.kind, STEPS)
    expected["total"] = sum(expected.values())
    for phase, cost in expected.items():
        assert setting["phases"][phase]["event_ms"]["mean"] == pytest.approx(cost, rel=0.02), phase


def test_no_count_is_missing_and_every_cycle_is_accounted_for(taken: Taken) -> None:
    for block in taken.blocks:
        assert block.unknown == 0
        assert block.decode_cycles == block.cycles + sum(block.dropped.values())


def test_clients_got_the_tokens_that_they_asked_for(taken: Taken) -> None:
    assert [len(answer["output_ids"]) for answer in taken.answers] == list(FOUR)


def test_the_probe_counts_each_request_as_it_went(taken: Taken) -> None:
    model = read_model(None).acceptance
    acceptance = Acceptance(model.seed, tuple(model.survival))
    cycles = [replay(acceptance, taken.kind, text, tokens) for text, tokens in taken.requests]
    expected = Counter(correct for request in cycles for correct in request)
    counted: Counter[int] = Counter()
    for block in taken.blocks:
        counted.update(dict(enumerate(block.correct_hist)))
    assert +counted == expected


def test_tokens_counted_are_the_tokens_received(taken: Taken) -> None:
    model = read_model(None).acceptance
    acceptance = Acceptance(model.seed, tuple(model.survival))
    received = beyond = 0
    for text, tokens in taken.requests:
        decoded = sum(correct + 1 for correct in replay(acceptance, taken.kind, text, tokens))
        received += tokens
        beyond += 1 + decoded - tokens  # what the GPU made after the request was over
    # Prefill gives each request its first token.
    assert sum(block.tokens for block in taken.blocks) + len(taken.requests) - beyond == received
    assert taken.kind.v2 or beyond == 0


def test_the_four_ran_together_and_each_batch_size_has_its_own_blocks(taken: Taken) -> None:
    cycles: Counter[int] = Counter()
    for block in taken.blocks:
        cycles[block.batch_size] += block.decode_cycles
    assert set(cycles) == {1, 2, 3, 4}
    assert cycles[4] > 20


def test_every_worker_says_whether_a_graph_ran(taken: Taken) -> None:
    assert all(block.graph == {"cuda_graph": block.decode_cycles, "eager": 0} for block in taken.blocks)


def test_rollback_restores_every_byte(taken: Taken) -> None:
    assert taken.after == taken.before


def test_adaptive_steps_have_their_own_blocks_and_are_never_mixed(adaptive: Taken) -> None:
    cycles: Counter[int] = Counter()
    for block in adaptive.blocks:
        cycles[block.steps] += block.decode_cycles
        assert len(block.correct_hist) == block.steps + 1
        if block.batch_size == 1:
            expected = phases_of(adaptive.kind, block.steps)
            for phase in ("draft", "verify"):
                # Within the lab's jitter of 1 %: a single cycle of another step count would stand out.
                assert block.event_ms[phase] == pytest.approx([expected[phase]] * block.cycles, rel=0.012)
    assert min(cycles[steps] for steps in (1, 2, 5)) > 20
    assert sum(block.dropped["steps_change"] for block in adaptive.blocks) > 5


def test_adaptive_steps_lose_no_token(adaptive: Taken) -> None:
    assert adaptive.records.problems == []
    assert sum(block.unknown for block in adaptive.blocks) == 0
    # v1 hands out what it accepted and nothing else, whatever the step count was.
    counted = sum(block.tokens for block in adaptive.blocks) + len(adaptive.requests)
    assert counted == sum(tokens for _, tokens in adaptive.requests)
