"""Several step counts in one load, by the controller of a release that has one."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from labkit import importable, released

from eaglelab.lab.standin.args import Release, parse
from eaglelab.lab.standin.device import Gpu
from eaglelab.lab.standin.request import Request
from eaglelab.lab.standin.worker import SpecWorker

VERSION = "0.5.12"


def candidates(tmp_path: Path, config: object, launched: int) -> list[str]:
    """The command line of a server that starts with `launched` steps and then has those of `config` to choose from."""
    file = tmp_path / "steps.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    flags = f"--model m --speculative-algorithm EAGLE3 --speculative-num-steps {launched} --speculative-eagle-topk 1 "
    flags += (
        f"--speculative-num-draft-tokens {launched + 1} --speculative-adaptive --speculative-adaptive-config {file}"
    )
    return flags.split()


def test_the_real_controller_switches_between_the_steps_of_its_file(
    gpu: Gpu, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flags = candidates(tmp_path, {"candidate_steps": [1, 2, 10], "warmup_batches": 1_000_000_000}, launched=2)
    one = Request("rid", "p", 5, 10_000, True, False, 0.0)
    with importable(released(VERSION)), caplog.at_level(logging.INFO):
        worker = SpecWorker("eagle_worker", "EAGLEWorker", gpu, parse(flags), Release.of(VERSION))
        assert (worker.steps, worker.draft_tokens) == (2, 3)
        assert worker.instance.adaptive_controller.candidate_steps == [1, 2, 10]
        for steps in (10, 1, 2):
            worker.instance.adaptive_controller._activate(steps)
            began = gpu.clock.now
            results = []
            for _ in range(200):
                results.append(worker.decode([one]))
                worker.after_cycle()
            assert (gpu.clock.now - began) * 1e3 / 200 == pytest.approx(gpu.costs.cycle(steps), rel=1e-3)
            accepted = sum(result.tokens[0] for result in results) / 200
            assert accepted == pytest.approx(gpu.acceptance.accept_length(steps), rel=0.04)
    assert "Built adaptive runtime state steps=10" in caplog.text
    assert "Switch adaptive runtime state: steps 2 -> 10, draft_tokens 3 -> 11" in caplog.text


@pytest.mark.parametrize(
    ("version", "launched", "starts"),
    [("0.5.12", 2, True), ("0.5.16", 2, False), ("0.5.16", 10, True), ("0.5.23", 2, True)],
)
def test_some_releases_capture_no_more_steps_than_they_were_started_with(
    gpu: Gpu, tmp_path: Path, version: str, launched: int, starts: bool
) -> None:
    """Seen with 0.5.16 on a GPU: it captured 1 and 2 of 1, 2, 3, 5 and 8, started with 3, and died of 5."""
    config = {"candidate_steps": [1, 2, 10]}
    flags = candidates(tmp_path, config if version == "0.5.12" else {"1": config}, launched)
    with importable(released(version)):

        def start() -> SpecWorker:
            return SpecWorker("eagle_worker_v2", "EAGLEWorkerV2", gpu, parse(flags), Release.of(version))

        if starts:
            assert start().instance.adaptive_controller.candidate_steps == [1, 2, 10]
        else:
            with pytest.raises(AssertionError, match=r"holds 144 rows but caller needs 528"):
                start()
