"""bench with SGLang's own client in the lab, over the whole road: the client of 0.5.9 as it is, and a stand-in for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from scene import ROOT, Scene, picture, processes_of

CASES = ROOT / "tests" / "cases" / "serving"
SMALL = ("--client", "sglang", "--num-prompts", "6", "--repeats", "2", "--output-len", "48", "--steps", "2")


@pytest.fixture
def package(scene: Scene) -> Path:
    return scene.folder / ".lab" / "host" / "home" / "sglang" / "python" / "sglang"


def test_the_real_client_names_the_module_that_the_host_lacks(scene: Scene, package: Path) -> None:
    before = picture(package)
    done = scene.invoke("bench", *SMALL, "--json", code=1)
    assert "sglang.bench_serving does not start there: its Python has no module aiohttp" in " ".join(
        done.stderr.split()
    )
    assert picture(package) == before


def test_the_stand_in_measures_baseline_and_steps_against_the_recorded_contract(scene: Scene, package: Path) -> None:
    shutil.copy(CASES / "bench_serving.py", package / "bench_serving.py")
    before = picture(package)
    inventory = scene.folder / "with-row.yaml"
    text = (ROOT / "inventory.yaml").read_text().rstrip("\n")
    inventory.write_text(f"{text}\n      env: {{STANDIN_ROW: {CASES / '0.5.9.jsonl'}}}\n")
    done = scene.invoke("bench", *SMALL, "--concurrency", "1,2", "--inventory", str(inventory), "--json")
    found = done.json["hosts"]["sim"]
    told = [(each["steps"], each["concurrency"], each["runs"]) for each in found["settings"]]
    assert told == [(None, 1, 2), (2, 1, 2), (None, 2, 2), (2, 2, 2)]
    assert all(run["row"]["completed"] == 6 and run["row"]["total_output_tokens"] == 288 for run in found["runs"])
    # By the lab's model 94 tok/s with two steps against 89 without; a few short requests in wall time are far from exact.
    assert all(0.7 < each["speed_up"]["mean"] < 1.5 for each in found["settings"] if each["steps"])
    assert "all figures: simulated GPU; in wall time" in " ".join(done.stderr.split())
    assert picture(package) == before
    bundle = Path(done.json["bundle"])
    assert json.loads((bundle / "serving.json").read_text())["simulated"] == "simulated GPU"
    assert (bundle / "baseline" / "output-c2-r1.txt").read_text().startswith("stand-in for bench_serving: --backend")
    assert not any("bench_serving" in command for command in processes_of(str(scene.folder)))
