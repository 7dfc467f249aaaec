"""Inventory entries that the project's own reader takes, and what a load is expected to take."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from eaglelab.inventory import load_inventory
from eaglelab.server.command import server_command
from gpu.truth import craft_truth
from gpu.validate import machine
from gpu.validate.machine import Gpu, Lab, installed_release
from gpu.validate.setting import CANDIDATES, Setting
from gpu.validate.workspace import CommandError, Done, Workspace


@pytest.fixture
def gpu(tmp_path: Path) -> Gpu:
    workspace = Workspace(tmp_path / "work", {})
    models = tmp_path / "models"
    (models / "draft-0.6").mkdir(parents=True)
    craft_truth(100, 0.6, 7).save(models / "truth-0.6.json")
    return Gpu(workspace, "0.5.12", models, "/usr/bin/python3", tmp_path / "site", 1, 31000, tmp_path / "server.log")


@pytest.fixture
def newer(gpu: Gpu) -> Gpu:
    return replace(gpu, release="0.5.16")


def host_of(gpu: Gpu, setting: Setting):  # type: ignore[no-untyped-def]
    gpu.workspace.inventory(gpu.entry(setting))
    (host,) = load_inventory(gpu.workspace.folder / "inventory.yaml").select(None, env={})
    return host


def test_the_entry_starts_the_server_that_was_asked_for(gpu: Gpu) -> None:
    host = host_of(gpu, Setting(worker="v1", candidates=CANDIDATES))
    command = " ".join(server_command(host, python=host.python, steps=host.server.speculative.num_steps))
    assert f"--model-path {gpu.models}/target" in command
    assert f"--speculative-draft-model-path {gpu.models}/draft-0.6" in command
    assert "--speculative-num-steps 8 " in command, "the largest: 0.5.15 to 0.5.18 have no room for more than that"
    assert "--speculative-adaptive " in command
    assert "--skip-tokenizer-init" in command
    file = host.server.flags["speculative-adaptive-config"]
    assert json.loads(Path(file).read_text())["candidate_steps"] == [1, 2, 3, 5, 8]
    assert host.server.env["SGLANG_ENABLE_SPEC_V2"] == "0"
    assert host.server.env["CUDA_VISIBLE_DEVICES"] == "1"
    assert host.connection == "local"


def test_a_server_on_two_gpus_sees_them_both(gpu: Gpu) -> None:
    host = host_of(gpu, Setting(tp_size=2))
    assert "CUDA_VISIBLE_DEVICES" not in host.server.env
    assert host.server.tp_size == 2


def test_servers_over_more_gpus_than_there_are_cannot_be_had(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "gpu_count", lambda: 2)
    assert gpu.why_not(Setting(tp_size=2)) is None
    assert gpu.why_not(Setting(tp_size=4)) == "it needs 4 GPUs, there are 2"


def test_what_ranks_talk_by_is_set_in_the_environment_of_the_server(gpu: Gpu) -> None:
    host = host_of(gpu, Setting(tp_size=2, env=(("NCCL_ALGO", "Ring"),)))
    assert host.server.env["NCCL_ALGO"] == "Ring"
    assert host.server.env["SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK"] == "0"
    assert "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK" not in host_of(gpu, Setting()).server.env


def test_too_much_memory_is_asked_for_in_place_of_the_usual(gpu: Gpu) -> None:
    host = host_of(gpu, Setting(flags=gpu.too_much))
    assert host.server.flags["mem-fraction-static"] == 0.985
    assert host.server.flags["cuda-graph-max-bs"] == 2048
    assert host.server.flags["attention-backend"] == "triton"


def test_from_0_5_16_on_the_flag_of_the_graphs_names_the_phase_and_prefill_has_none(newer: Gpu) -> None:
    flags = host_of(newer, Setting(flags=newer.too_much)).server.flags
    assert flags["cuda-graph-max-bs-decode"] == 2048
    assert flags["disable-prefill-cuda-graph"] is True
    assert "cuda-graph-max-bs" not in flags


def test_from_0_5_13_on_the_candidates_are_keyed_by_batch_size(newer: Gpu) -> None:
    file = host_of(newer, Setting(candidates=(1, 4))).server.flags["speculative-adaptive-config"]
    assert json.loads(Path(file).read_text())["1"]["candidate_steps"] == [1, 4]


def test_newer_releases_have_no_worker_v1(gpu: Gpu, newer: Gpu) -> None:
    assert newer.why_not(Setting(worker="v1")) == "SGLang 0.5.16 has no worker v1"
    assert Lab(gpu.workspace, "0.5.16").why_not(Setting(worker="v1")) == "SGLang 0.5.16 has no worker v1"
    assert newer.why_not(Setting()) is None
    assert gpu.why_not(Setting(worker="v1")) is None


def test_the_release_is_read_where_sglang_lies(tmp_path: Path) -> None:
    (tmp_path / "sglang-0.5.16.dist-info").mkdir()
    (tmp_path / "sglang_kernel-0.4.5.dist-info").mkdir()
    assert installed_release(sys.executable, tmp_path) == "0.5.16"
    (tmp_path / "sglang-0.5.12.post1.dist-info").mkdir()
    with pytest.raises(CommandError, match=r"there must be one sglang in .*, not 2"):
        installed_release(sys.executable, tmp_path)


def test_a_python_without_sglang_is_told(tmp_path: Path) -> None:
    python = tmp_path / "python"
    with pytest.raises(CommandError, match="does not say which SGLang it has"):
        installed_release(str(python), None)
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(CommandError, match="has no sglang"):
        installed_release(str(python), None)


def test_models_that_are_not_there_are_told(gpu: Gpu) -> None:
    assert gpu.why_not(Setting()) is None
    assert gpu.why_not(Setting(acceptance=0.8)) == f"there is no {gpu.models}/draft-0.8"
    assert gpu.truth(0.6) == craft_truth(100, 0.6, 7)


def test_the_first_load_is_expected_to_take_longer(gpu: Gpu) -> None:
    first = gpu.load_seconds(Setting(candidates=CANDIDATES))
    (gpu.workspace.folder / "logs/20261129-210845-play-3dd0").mkdir(parents=True)
    assert (first, gpu.load_seconds(Setting(candidates=CANDIDATES)), gpu.load_seconds(Setting())) == (165, 100, 60)


def test_the_workspace_is_a_project_of_its_own(gpu: Gpu) -> None:
    folder = gpu.workspace.folder
    assert {path.name for path in folder.iterdir()} >= {"tasks.py", "playbooks", "patches"}
    gpu.workspace.inventory({"connection": "local"})
    written = yaml.safe_load((folder / "inventory.yaml").read_text())
    assert written == {"default_host": "here", "hosts": {"here": {"connection": "local"}}}


def test_a_server_beside_has_a_tree_a_folder_of_state_and_ports_of_its_own(gpu: Gpu, tmp_path: Path) -> None:
    spare = tmp_path / "spare"
    (spare / "sglang/srt").mkdir(parents=True)
    (spare / "sglang/srt/worker.py").write_text("original")
    (spare / "torch.py").write_text("shared")
    gpu.spare = spare
    first, second = gpu.beside("k3", 1), gpu.beside("off", 2)
    assert (first.port, second.port) == (32500, 34000)
    host = host_of(first, Setting())  # type: ignore[arg-type]
    site = Path(host.server.env["PYTHONPATH"])
    (site / "sglang/srt/worker.py").write_text("patched")
    assert (spare / "sglang/srt/worker.py").read_text() == "original"
    assert (site / "torch.py").is_symlink()
    assert gpu.beside("k3", 1).entry(Setting())["server"]["env"]["PYTHONPATH"] == str(site)
    assert (site / "sglang/srt/worker.py").read_text() == "patched", "a tree that is there is used again"


def test_without_an_untouched_tree_there_are_no_servers_beside(gpu: Gpu) -> None:
    with pytest.raises(CommandError, match="--spare"):
        gpu.beside("k3", 1)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (
            {"error": {"what": "the server died: NCCL failed\n  the log's last line", "hint": "correct it"}},
            "the server died: NCCL failed (hint: correct it)",
        ),
        ({"error": {"what": "no host", "hint": ""}}, "no host"),
        ({}, "3 / 4 / 5 / 6 / 7 / 8"),
    ],
)
def test_a_command_that_failed_is_told_by_its_own_error_and_else_by_its_last_lines(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, outcome: dict[str, object], said: str
) -> None:
    ended = Done(1, outcome, "".join(f"{number}\n" for number in range(9)))
    monkeypatch.setattr(gpu.workspace, "start", lambda *words: None)
    monkeypatch.setattr(gpu.workspace, "end", lambda command, timeout: ended)
    with pytest.raises(CommandError) as error:
        gpu.workspace.invoke("play", "x.yaml", timeout=1)
    assert str(error.value) == f"invoke play x.yaml ended with 1, not 0: {said}"
