"""Sweeps on the embedded lab: what the figures say is what the lab's model says, in as few loads as the release allows.

The machine that runs this may be busy: what is asserted of times leaves room for that, what is counted does not.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from controller import Controller
from lab_kinds import Kind, ask
from scene import ROOT, Done, Scene, picture

from eaglelab.profile.measurement import Evidence, examine
from eaglelab.profile.measurement_set import Measurement, MeasurementSet, from_json
from eaglelab.profile.records import CycleBlock, read_records
from eaglelab.server.prompts import prompt

KINDS = (
    Kind("0.5.9", "0.5.9", "EAGLEWorker"),
    Kind("0.5.12 v1", "0.5.12", "EAGLEWorker", flags=("disable-overlap-schedule: true",)),
    Kind("0.5.12 v2", "0.5.12", "EAGLEWorkerV2", late=True),
    Kind("0.5.23", "0.5.23", "EAGLEWorkerV2", late=True),
)
SMALL = ("--num-prompts", "6", "--repeats", "6", "--output-len", "120")
ROOM = 0.05
"""By how much the cycle may miss what clients received, once it is known how late this machine brought it to them."""
SETTINGS = ("--steps", "1,2,5", *SMALL)


def home_of(scene: Scene) -> Path:
    return scene.folder / ".lab/host/home"


def package_of(scene: Scene) -> Path:
    return home_of(scene) / "sglang/python/sglang"


def starts(scene: Scene) -> int:
    """How many servers the host has ever been asked to start."""
    journal = home_of(scene) / ".local/state/eaglelab/journal.jsonl"
    lines = journal.read_text().splitlines() if journal.exists() else []
    return [json.loads(line)["op"] for line in lines].count("start")


def flagged(scene: Scene, kind: Kind) -> Scene:
    """The scene with the flags of `kind` in its inventory."""
    lines = [*(["      flags:"] if kind.flags else []), *(f"        {flag}" for flag in kind.flags)]
    text = (ROOT / "inventory.yaml").read_text().rstrip("\n")
    (scene.folder / "inventory.yaml").write_text("\n".join([text, *lines, ""]))
    return scene


@dataclass(frozen=True)
class Swept:
    """What one sweep left: its outcome, how many servers it started, and whether the package is as it was."""

    kind: Kind
    done: Done
    loads: int
    restored: bool

    @property
    def found(self) -> dict[str, Any]:
        return dict(self.done.json["hosts"]["sim"])

    @property
    def bundle(self) -> Path:
        return Path(self.done.json["bundle"])

    @property
    def set(self) -> MeasurementSet:
        return from_json((self.bundle / "measurements.json").read_text())

    def of(self, steps: int | None, *, probed: bool) -> Measurement:
        (found,) = [
            each for each in self.set.measurements if each.result.key.steps == steps and each.result.profiled is probed
        ]
        return found


def late(swept: Swept, found: Measurement, *, whole: bool = False) -> float:
    """How long the clients saw decoding take, by what the server says itself: more than 1 on a busy machine.

    `whole`: from sending a request to its end. The server's clock is a simulated one, on which nothing but the model's costs takes time; clients have a real one.
    """
    wanted = {sample.rid for sample in found.result.requests}
    lines = [line for file in swept.bundle.glob("*/requests-*.jsonl") for line in file.read_text().splitlines()]
    records = [record for record in map(json.loads, lines) if record.get("rid") in wanted]
    assert len(records) == len(wanted) == 6
    times = [
        record["ended"] - record["started"] if whole else record["chunks"][-1][0] - record["chunks"][0][0]
        for record in records
    ]
    seen = sum(times) * clock_rate(swept)
    return float(seen / sum(record["meta_info"]["e2e_latency"] for record in records))


def clock_rate(swept: Swept) -> float:
    return float(json.loads((swept.bundle / "server_info.json").read_text())["simulated"]["clock_rate"])


def sweep(scene: Scene, kind: Kind, *words: str) -> Swept:
    before, started = picture(package_of(scene)), starts(scene)
    done = scene.invoke("sweep", *words, "--json")
    return Swept(kind, done, starts(scene) - started, picture(package_of(scene)) == before)


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def swept(request: pytest.FixtureRequest, scene_of: Callable[[str], Scene]) -> Swept:
    kind = request.param
    return sweep(flagged(scene_of(kind.version), kind), kind, *SETTINGS)


@pytest.fixture(scope="module")
def newer(scene_of: Callable[[str], Scene]) -> Scene:
    """A release that holds several step counts."""
    return flagged(scene_of("0.5.12"), KINDS[2])


def test_there_are_as_many_loads_as_planned(swept: Swept) -> None:
    assert swept.loads == (4 if swept.kind.version == "0.5.9" else 2)


def test_the_host_is_as_it_was(swept: Swept) -> None:
    assert swept.restored


def test_the_ranking_is_that_of_the_cost_model(swept: Swept) -> None:
    (found,) = swept.found["rankings"]
    ranking = found["ranking"]
    groups = [[key["steps"] for key in group] for group in ranking["groups"]]
    assert 2 in groups[0]
    assert 5 in groups[-1]
    assert ranking["rounds"] == 6
    held_up = [late(swept, swept.of(steps, probed=False), whole=True) for steps in (1, 2, 5)]
    if max(held_up) > 1.05 * min(held_up):
        pytest.skip("this machine was too busy for figures that tell settings apart: a tie is the right answer")
    assert groups[-1] == [5]
    five = next(each for each in ranking["settings"] if each["steps"] == 5)
    assert five["to_best"]["percent"] == pytest.approx(-25.0, abs=7.0)  # 94.0 and 71.0, or 99.1 and 73.5 tok/s


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_client_probe_and_server_agree_to_the_token_and_on_the_accept_length(swept: Swept, steps: int) -> None:
    findings = {finding.code: finding for finding in swept.of(steps, probed=True).findings}
    assert findings["tokens"].severity == "ok", findings["tokens"].sentence
    assert findings["tokens"].numbers["client_tokens"] == 6 * 120
    found = swept.of(steps, probed=True)
    explained = (1 + float(findings["closure"].numbers["difference"] or 0)) / late(swept, found)
    assert explained == pytest.approx(1.0, abs=ROOM), findings["closure"].sentence
    assert findings["accept-length-sources"].severity == "ok", findings["accept-length-sources"].sentence
    assert not {"foreign-requests", "wrong-concurrency", "steps-mismatch", "failed-requests"} & set(findings)


def test_the_accept_length_rises_with_the_steps_as_the_model_has_it(swept: Swept) -> None:
    lengths = [swept.of(steps, probed=True).setting for steps in (1, 2, 5)]
    found = [setting.acceptance.length for setting in lengths if setting and setting.acceptance]
    assert found == pytest.approx([1.4975, 1.7450, 1.9599], rel=0.06)
    assert swept.set.across == ()


def test_every_setting_was_sent_the_same_prompts_in_the_same_rounds(swept: Swept) -> None:
    outputs = {
        tuple((sample.round, sample.output_hash) for sample in found.result.requests)
        for found in swept.set.measurements
    }
    assert len(outputs) == 1


def test_one_load_and_separate_loads_say_the_same(newer: Scene) -> None:
    one, each = (sweep(newer, KINDS[2], "--no-baseline", *SETTINGS, *more) for more in ((), ("--separate-loads",)))
    assert (one.loads, each.loads) == (1, 3)
    for steps in (1, 2, 5):
        first, second = one.of(steps, probed=False).result, each.of(steps, probed=False).result
        assert [sample.output_hash for sample in first.requests] == [sample.output_hash for sample in second.requests]
        assert [sample.verifies for sample in first.requests] == [sample.verifies for sample in second.requests]
        rates = [found["summary"]["throughput"] for run in (one, each) for found in measured(run, steps)]
        halves = [(rate["ci95"][1] - rate["ci95"][0]) / 2 for rate in rates]
        apart = abs(rates[0]["value"] - rates[1]["value"])
        assert apart <= max(2 * math.hypot(*halves), 0.04 * rates[0]["value"])


def measured(run: Swept, steps: int) -> list[dict[str, Any]]:
    return [each for each in run.found["measurements"] if each["steps"] == steps and not each["profiled"]]


def loads_of(scene: Scene, run: str) -> dict[str, dict[str, Any] | None]:
    """The loads of a run on the host, and how far each is."""
    folder = home_of(scene) / ".local/state/eaglelab/runs" / run / "load"
    found = {}
    for path in folder.glob("*.jsonl"):
        progress = path.with_suffix(".progress.json")
        found[path.stem] = json.loads(progress.read_text()) if progress.exists() else None
    return found


def under_way(scene: Scene, controller: Controller, finished: int) -> str:
    """Waits until so many requests of a load of several step counts have ended. Returns the run."""
    found: list[str] = []

    def well_begun() -> bool:
        for folder in (scene.folder / "logs").glob("*-sweep-*"):
            for name, progress in loads_of(scene, folder.name).items():
                done = (progress or {}).get("finished", 0)
                if name.startswith("k") and finished <= done < (progress or {})["requests"]:
                    found.append(folder.name)
        return bool(found)

    controller.until(well_begun, "it was in the middle of a load")
    return found[-1]


def test_a_killed_controller_is_taken_up_without_a_second_load(newer: Scene) -> None:
    before, started = picture(package_of(newer)), starts(newer)
    controller = Controller(newer, "killed", "sweep", "--no-baseline", *SETTINGS)
    run = under_way(newer, controller, 5)
    controller.process.kill()
    controller.process.wait()
    done = newer.invoke("sweep", "--resume", run, "--json")
    assert starts(newer) - started == 1
    assert list(loads_of(newer, run)) == ["k1-2-5-c1"]
    assert "going on with the load k1-2-5-c1" in done.stderr
    found = done.json["hosts"]["sim"]
    assert [
        (each["steps"], each["summary"]["requests"], each["summary"]["failed"]) for each in found["measurements"]
    ] == [(steps, 6, 0) for steps in (1, 1, 2, 2, 5, 5)]
    codes = [(f["code"], f["severity"]) for each in found["measurements"] for f in each["findings"]]
    assert codes.count(("tokens", "ok")) == 3
    assert [code for code, _ in codes].count("closure") == 3
    assert picture(package_of(newer)) == before
    assert newer.invoke("status", "--json").json["hosts"]["sim"]["members"] == []


def test_requests_of_somebody_else_are_noticed(newer: Scene) -> None:
    controller = Controller(newer, "foreign", "sweep", "--no-baseline", "--json", *SETTINGS)
    under_way(newer, controller, 1)
    port = json.loads((newer.folder / ".lab/lab.json").read_text())["server_port"]
    for number in range(12):
        ask(port, prompt(number), 60, f"of-somebody-else-{number}")
        time.sleep(0.12)  # between them the cache can be flushed
        if controller.process.poll() is not None:
            break
    assert controller.process.wait(60) == 0, controller.err
    bundle = max((newer.folder / "logs").glob("*-sweep-*"))
    findings = [f for each in from_json((bundle / "measurements.json").read_text()).measurements for f in each.findings]
    assert [f for f in findings if f.code == "foreign-requests"]
    assert [f for f in findings if f.code in ("tokens", "steps-mismatch") and f.severity != "ok"]


def doctored(swept: Swept, steps: int, change: Callable[[CycleBlock], CycleBlock]) -> dict[str, str]:
    """The checks of one setting once more, with the probe's records changed: severity by code."""
    found = swept.of(steps, probed=True)
    files = (swept.bundle / Path(found.result.load) / "probe").glob("*.jsonl")
    blocks = read_records(line for file in files for line in file.read_bytes().splitlines()).blocks
    one_load = swept.kind.version != "0.5.9"
    evidence = Evidence(found.result, [change(block) for block in blocks], one_load=one_load)
    return {finding.code: finding.severity for finding in examine(evidence).findings}


def slower(block: CycleBlock) -> CycleBlock:
    """As if the cycle had taken a third longer than it did."""
    total = tuple(ms * 4 / 3 for ms in block.event_ms["total"])
    return dataclasses.replace(block, event_ms={**block.event_ms, "total": total})


def short(block: CycleBlock) -> CycleBlock:
    """As if a cycle had not been seen."""
    seen = next(j for j, count in enumerate(block.correct_hist) if count)
    histogram = [count - (j == seen) for j, count in enumerate(block.correct_hist)]
    return dataclasses.replace(block, tokens=block.tokens - seen - 1, correct_hist=tuple(histogram))


def test_a_probe_whose_times_or_counts_are_wrong_is_caught(swept: Swept) -> None:
    assert doctored(swept, 2, lambda block: block)["tokens"] == "ok"
    assert doctored(swept, 2, slower)["closure"] == "alarm"
    assert doctored(swept, 2, short)["tokens"] == "alarm"


def test_an_accept_length_that_falls_with_more_steps_is_caught(swept: Swept) -> None:
    """The lab cannot serve it: with its model more steps find the same right drafts and more."""

    def twice(found: Measurement) -> Measurement:
        samples = [dataclasses.replace(sample, verifies=2 * (sample.verifies or 0)) for sample in found.result.requests]
        result = dataclasses.replace(found.result, requests=tuple(samples))
        return dataclasses.replace(found, result=result) if found.result.steps == 5 else found

    wrong = dataclasses.replace(swept.set, measurements=tuple(map(twice, swept.set.measurements)))
    assert {finding.code: finding.severity for finding in wrong.across}["accept-length-falls"] == "alarm"


def test_a_server_that_dies_of_nccl_is_told_so_and_the_other_setting_is_measured(newer: Scene) -> None:
    """`NCCL_ALGO=Tree` over two ranks, as it went on two real GPUs; refused, unless it is asked for all the same."""
    inventory = newer.folder / "inventory.yaml"
    one_gpu = inventory.read_text()
    inventory.write_text(one_gpu.replace("      tp_size: 1", "      tp_size: 2"))
    words = ["sweep", "--steps", "2", "--no-baseline", "--env", "NCCL_ALGO=allreduce:Ring,Tree", *SMALL]
    words += ["--server-arg", "disable-custom-all-reduce=on", "--json"]
    try:
        before, started = picture(package_of(newer)), starts(newer)
        refused = newer.invoke(*words, code=1).json["error"]
        assert refused["what"].startswith("NCCL_ALGO=Tree leaves NCCL nothing for AllGather")
        assert starts(newer) == started
        done = newer.invoke(*words, "--anyway", code=1)
        assert starts(newer) - started == 2
        (failed,) = done.json["hosts"]["sim"]["failed"]
        assert failed["variation"] == "NCCL_ALGO=Tree disable-custom-all-reduce"
        assert "NCCL does not take what it was told" in failed["what"]
        (measured,) = [each for each in done.json["hosts"]["sim"]["measurements"] if not each["profiled"]]
        assert (measured["variation"], measured["summary"]["failed"]) == (
            "NCCL_ALGO=allreduce:Ring disable-custom-all-reduce",
            0,
        )
        assert picture(package_of(newer)) == before
    finally:
        inventory.write_text(one_gpu)
