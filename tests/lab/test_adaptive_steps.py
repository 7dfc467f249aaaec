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


def test_the_real_controller_switches_between_the_steps_of_its_file(
    gpu: Gpu, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "steps.json"
    config.write_text(json.dumps({"candidate_steps": [1, 2, 10], "warmup_batches": 1_000_000_000}), encoding="utf-8")
    flags = "--model m --speculative-algorithm EAGLE3 --speculative-num-steps 2 --speculative-eagle-topk 1 "
    flags += f"--speculative-num-draft-tokens 3 --speculative-adaptive --speculative-adaptive-config {config}"
    one = Request("rid", "p", 5, 10_000, True, False, 0.0)
    with importable(released(VERSION)), caplog.at_level(logging.INFO):
        worker = SpecWorker("eagle_worker", "EAGLEWorker", gpu, parse(flags.split()), Release.of(VERSION))
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
