"""bench and sweep with SGLang's own client, on hosts in memory: a load for each setting, and nothing is patched."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from fake_host import PROBE_PATH, WORKER, WORKER_PATH
from serving_host import ServingHost

SMALL = ("--client", "sglang", "--num-prompts", "4", "--repeats", "2", "--output-len", "64")


@pytest.fixture
def fake(fakes: dict[str, Any]) -> ServingHost:
    fakes["a"] = ServingHost()
    fakes["a"].facts["sglang_version"] = "0.5.12.dev1"  # one that could hold several step counts in a load
    return fakes["a"]


def test_every_setting_is_a_load_of_its_own_and_the_speed_up_is_over_the_baseline(invoke, own: Path, fake) -> None:
    done = invoke("bench", "--steps", "2,3", *SMALL, "--json")
    assert done.code == 0, done.err
    assert list(fake.runs) == [f"{name}-c1-r{number}" for name in ("baseline", "k2", "k3") for number in (0, 1)]
    assert fake.ops().count("start") == 3
    found = done.json["hosts"]["a"]
    assert [setting["steps"] for setting in found["settings"]] == [None, 2, 3]
    assert [setting["speed_up"] and setting["speed_up"]["mean"] for setting in found["settings"]] == [None, 1.25, 1.125]
    assert found["settings"][1]["speed_up"]["count"] == 2
    assert "probe off" in done.err
    assert "bench_serving cannot choose a step count by request" in " ".join(done.err.split())


def test_nothing_is_patched_and_the_probe_is_off(invoke, own: Path, fake) -> None:
    assert invoke("bench", "--steps", "2", *SMALL).code == 0
    assert not {"backup", "apply"} & set(fake.ops())
    assert fake.env == {}
    assert (fake.files[WORKER_PATH], PROBE_PATH in fake.files, fake.alive) == (WORKER, False, False)


def test_the_bundle_has_the_rows_as_json_and_as_csv_under_their_own_names(invoke, own: Path, fake) -> None:
    done = invoke("bench", "--steps", "2", *SMALL, "--json")
    bundle = Path(done.json["bundle"])
    document = json.loads((bundle / "serving.json").read_text())
    assert len(document["runs"]) == 4
    assert document["runs"][0]["row"]["dataset_name"] == "custom"
    rows = list(csv.DictReader((bundle / "serving.csv").read_text().splitlines()))
    assert [row["output_throughput"][:4] for row in rows] == ["80.0", "80.8", "100.", "101."]
    assert "sk-hidden" not in "".join(path.read_text() for path in bundle.rglob("*") if path.is_file())
    assert (bundle / "k2" / "server.log").exists()
    assert (bundle / "k2" / "output-c1-r1.txt").read_text().startswith("Starting warmup")


def test_a_sweep_varies_flags_and_variables_the_same_way(invoke, own: Path, fake) -> None:
    done = invoke("sweep", "--steps", "2", "--server-arg", "disable-overlap-schedule=on,off", *SMALL, "--json")
    assert done.code == 0, done.err
    settings = done.json["hosts"]["a"]["settings"]
    variations = ["disable-overlap-schedule", "no disable-overlap-schedule"]
    assert [(each["steps"], each["variation"]) for each in settings] == [
        (steps, variation) for variation in variations for steps in (None, 2)
    ]
    assert [each["speed_up"]["mean"] for each in settings if each["steps"]] == [1.25, 1.25]


def test_a_setting_that_fails_is_named_and_the_others_are_measured(invoke, own: Path, fake) -> None:
    fake.dies_with = {"4"}  # draft tokens: one more than steps
    done = invoke("bench", "--steps", "2,3", *SMALL, "--json")
    assert done.code == 1
    assert "3 steps: failed:" in done.err
    assert [each["steps"] for each in done.json["hosts"]["a"]["failed"]] == [3]
    assert fake.files[WORKER_PATH] == WORKER
    assert fake.alive is False


def test_a_missing_module_is_found_before_any_load_and_the_other_client_is_named(invoke, own: Path, fake) -> None:
    fake.code, fake.output = 1, "ModuleNotFoundError: No module named 'aiohttp'\n"
    done = invoke("bench", "--steps", "2", *SMALL, "--json")
    assert done.code == 1
    assert "its Python has no module aiohttp" in done.err
    assert "start" not in fake.ops()


def test_what_the_release_cannot_send_is_refused_before_any_load(invoke, own: Path, fake) -> None:
    done = invoke("bench", "--steps", "2", *SMALL, "--temperature", "0.5", "--json")
    assert done.code == 2
    assert "SGLang 0.5.12.dev1 does not take --temperature" in done.err
    assert "start" not in fake.ops()


@pytest.mark.parametrize("command", ["bench", "sweep"])
def test_a_client_that_there_is_not_is_refused_with_those_that_there_are(invoke, own: Path, fake, command: str):
    done = invoke(command, "--client", "sglan")
    assert done.code == 2
    assert "there is no client 'sglan'" in done.err
    assert "sglang" in done.err.partition("hint")[2]
    assert fake.calls == []


def test_the_built_in_client_can_be_named(invoke, own: Path, fakes) -> None:
    done = invoke("bench", "--steps", "2", "--client", "built-in", "--num-prompts", "2", "--repeats", "2", "--json")
    assert done.code == 0, done.err
    assert [each["steps"] for each in done.json["hosts"]["a"]["measurements"]]


def test_check_says_what_would_be_run_and_changes_nothing(invoke, own: Path, fake) -> None:
    before = fake.snapshot()
    done = invoke("bench", "--steps", "2", *SMALL, "--check")
    assert done.code == 0, done.err
    assert "-m sglang.bench_serving" in " ".join(done.out.split())
    assert fake.snapshot() == before


def test_a_run_is_taken_up_with_the_client_that_it_was_begun_with(invoke, own: Path, fake) -> None:
    fake.fail["load_poll"] = KeyboardInterrupt()
    first = invoke("bench", "--steps", "2", *SMALL, "--json")
    assert first.code == 130
    del fake.fail["load_poll"]
    done = invoke("bench", "--resume", first.json["run"], "--json")
    assert done.code == 0, done.err
    assert [each["steps"] for each in done.json["hosts"]["a"]["settings"]] == [None, 2]
    assert invoke("bench", "--resume", first.json["run"], "--client", "built-in").code == 2
