"""What a host is: which SGLang its Python would run, found without importing it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hostkit import ORIGINAL, digest
from linkkit import wrapper
from serverkit import free_port

from eaglelab.remote.agent.checkup import nccl_version, torch_version
from eaglelab.remote.agent.facts import facts, machine, topology
from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.package import find_installation
from eaglelab.remote.agent.wire import AgentError

WORKER = "srt/speculative/eagle_worker.py"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose package raises when it is imported; the Python of the test finds it."""
    package = tmp_path / "checkout/python/sglang"
    (package / WORKER).parent.mkdir(parents=True)
    (package / WORKER).write_bytes(ORIGINAL)
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "_version.py").write_text("__version__ = version = '0.5.9'\n")
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{os.environ['PYTHONPATH']}")
    return tmp_path / "checkout"


def look(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    arguments = {
        "python": sys.executable,
        "sglang": None,
        "targets": [WORKER, "srt/speculative/eagle_worker_v2.py"],
        "port": free_port(),
        "log": str(tmp_path / "server.log"),
        "env": {},
    }
    return facts(Journal(str(tmp_path / "state")), **{**arguments, **changes})


def test_everything_a_plan_needs_comes_in_one_look_that_changes_nothing(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("12345")
    found = look(tmp_path)
    package = checkout / "python/sglang"
    assert (found["package"], found["sglang_version"]) == (str(package), "0.5.9")
    assert {name: file["sha256"] for name, file in found["files"].items()} == {WORKER: digest(ORIGINAL)}
    assert (found["port_holder"], found["port_is_ours"], found["log_size"]) == (None, False, 5)
    assert (found["manifest"], found["states"], found["loads"]) == (None, [], {})
    assert found["writable"] == {WORKER: True}
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("below", ["", "python", "python/sglang"])
def test_a_configured_checkout_may_be_named_by_any_of_its_folders(checkout: Path, tmp_path: Path, below: str) -> None:
    assert look(tmp_path, sglang=str(checkout / below))["package"] == str(checkout / "python/sglang")


def test_a_checkout_that_the_python_does_not_import_is_refused(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "other/sglang/srt").mkdir(parents=True)
    with pytest.raises(AgentError, match="a patch there would never run") as refused:
        find_installation(sys.executable, str(tmp_path / "other"), {})
    assert refused.value.code == "other-sglang"


def test_a_host_without_sglang_is_named(tmp_path: Path) -> None:
    for configured in (None, {}):
        with pytest.raises(AgentError) as refused:
            find_installation(sys.executable, configured, {})
        assert refused.value.code == "no-sglang"


def test_a_site_that_prints_and_a_python_that_reads_do_not_disturb(checkout: Path, tmp_path: Path) -> None:
    python = wrapper(tmp_path, "python", f'echo "SGLang says hello"; cat; exec {sys.executable} "$@"')
    assert find_installation(python, None, {})["package"] == str(checkout / "python/sglang")


@pytest.mark.parametrize(
    ("text", "what"), [("exit 3", "failed"), ("echo broken site >&2; exit 1", "failed: broken site")]
)
def test_a_python_that_fails_is_named_with_what_it_says(tmp_path: Path, text: str, what: str) -> None:
    python = wrapper(tmp_path, "python", text)
    with pytest.raises(AgentError, match=what) as refused:
        find_installation(python, None, {})
    assert refused.value.code == "no-python"


def test_a_python_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="cannot run /none: No such file"):
        find_installation("/none", None, {})


def test_a_folder_named_sglang_in_the_home_does_not_hide_the_package(
    checkout: Path, tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "home/sglang/python/sglang").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "home")
    assert find_installation(sys.executable, None, {})["package"] == str(checkout / "python/sglang")


def test_a_mere_folder_of_the_name_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    with pytest.raises(AgentError) as refused:
        find_installation(sys.executable, None, {"PYTHONPATH": str(tmp_path)})
    assert refused.value.code == "no-sglang"


def test_the_servers_own_variables_count_when_its_package_is_looked_for(tmp_path: Path) -> None:
    package = tmp_path / "elsewhere/sglang"
    (package / "srt").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    assert find_installation(sys.executable, None, {"PYTHONPATH": str(package.parent)})["package"] == str(package)


@pytest.mark.parametrize(("log", "writable"), [("new/folder/server.log", True), ("state-of-it", False)])
def test_a_log_can_be_written_where_its_nearest_folder_can(
    checkout: Path, tmp_path: Path, log: str, writable: bool
) -> None:
    (tmp_path / "state-of-it").mkdir()  # a folder is no log
    assert look(tmp_path, log=str(tmp_path / log))["log_writable"] is writable


def test_the_topology_is_what_nvidia_smi_prints_and_nothing_where_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\n[ "$*" = "topo -m" ] && echo "GPU0 X"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert topology() == "GPU0 X\n"
    program.write_text("#!/bin/sh\nexit 9\n")
    assert topology() == ""
    program.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert topology() == ""


def test_a_machine_is_known_by_itself_and_its_gpus(checkout: Path, tmp_path: Path, monkeypatch) -> None:
    program = tmp_path / "nvidia-smi"
    rows = ["0, H100, 81559, 4, 550.54, GPU-a", "1, H100, 81559, 4, 550.54, GPU-b"]
    program.write_text("#!/bin/sh\nprintf '%s\\n' '" + "' '".join(rows) + "'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = look(tmp_path)
    assert len(found["machine"]) == 16
    assert [gpu["uuid"] for gpu in found["gpus"]] == ["GPU-a", "GPU-b"]
    assert found["machine"] == machine([{"uuid": "GPU-b"}, {"uuid": "GPU-a"}])  # whatever their order
    program.write_text("#!/bin/sh\nexit 9\n")
    bare = look(tmp_path)
    assert bare["gpus"] == []
    assert bare["machine"] == machine([]) != found["machine"]
    assert machine([{"index": "0"}])  # a program that knows no uuid


def test_a_machine_without_a_number_goes_by_its_hostname(monkeypatch) -> None:
    def none_here(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", none_here)
    monkeypatch.setattr("socket.gethostname", lambda: "one")
    first = machine([])
    monkeypatch.setattr("socket.gethostname", lambda: "two")
    assert machine([]) != first


def test_the_configs_of_both_models_are_read_and_their_weights_counted(checkout: Path, tmp_path: Path) -> None:
    target, draft = tmp_path / "target", tmp_path / "draft"
    for folder in (target, draft):
        folder.mkdir()
    (target / "config.json").write_text('{"hidden_size": 7168}')
    (target / "model-1.safetensors").write_bytes(b"12345")
    (target / "model-2.safetensors").write_bytes(b"123")
    (target / "model-3.safetensors").symlink_to("was-never-fetched")
    (target / "training.bin").write_bytes(b"not weights, where there are safetensors")
    (draft / "config.json").write_text("[]")
    (draft / "pytorch_model.bin").write_bytes(b"1234")
    found = look(tmp_path, models={"target": str(target), "draft": str(draft), "hub": "org/model"})["models"]
    assert found == {
        "target": {"path": str(target), "config": {"hidden_size": 7168}, "weights": 8},
        "draft": {"path": str(draft), "config": {}, "weights": 4},
    }


@pytest.mark.parametrize("text", ["not json", '{"cut": ', "\xff", "[" * 100_000])
def test_a_config_that_cannot_be_read_is_empty(checkout: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target/config.json").write_bytes(text.encode("latin-1"))
    found = look(tmp_path, models={"target": str(tmp_path / "target")})["models"]
    assert found["target"]["config"] == {}


OLD_FLAGS = """
    parser.add_argument("--model-path", "--model", type=str)
    parser.add_argument('--port', type=int)
    parser.add_argument(
        "--tp-size",
    )
    parser.add_argument("--mem-fraction-static")
    parser.add_argument("--cuda-graph-max-bs")
"""
NEW_FLAGS = """
class Memory:
    model_path: A[str, Arg(aliases=["--model"])]
    port: A[int, "help"] = 30000
    tp_size: A[int, Arg(cli_name="--tensor-parallel-size")] = 1
    mem_fraction_static: A[
        Optional[float],
        "help",
    ] = None
    cuda_graph_max_bs: A[int, "help"] = 0
"""


@pytest.mark.parametrize(
    ("where", "text"), [("server_args.py", OLD_FLAGS), ("arg_groups/fields/memory.py", NEW_FLAGS)], ids=["old", "new"]
)
def test_flags_that_this_release_does_not_know_are_told_with_the_nearest(
    checkout: Path, tmp_path: Path, where: str, text: str
) -> None:
    file = checkout / "python/sglang/srt" / where
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    given = ["model", "mem-fraction-static", "cuda-graph-max", "cuda-graph-maxbs"]
    found = look(tmp_path, flags=given)["flags"]
    assert found["unknown"] == {"cuda-graph-maxbs": "cuda-graph-max-bs"}, (
        "a beginning that is unique is taken by argparse"
    )
    assert found["known"] >= 6


def test_where_the_flags_of_a_release_are_not_found_nothing_is_said_of_them(checkout: Path, tmp_path: Path) -> None:
    assert look(tmp_path, flags=["port"])["flags"] is None
    (checkout / "python/sglang/srt/server_args.py").write_text("# moved elsewhere\n")
    assert look(tmp_path, flags=["port"])["flags"] is None


def test_the_versions_of_pytorch_and_nccl_are_read_where_the_servers_python_imports_from(tmp_path: Path) -> None:
    site, dist = tmp_path / "env/lib/python3.11/site-packages", tmp_path / "usr/local/lib/python3.12/dist-packages"
    (dist / "torch-2.9.1+cu128.dist-info").mkdir(parents=True)
    (dist / "nvidia_nccl_cu12-2.27.5.dist-info").mkdir()
    (dist / "nvidia_nccl_cudnn_extras-1.0.dist-info").mkdir()
    path = ["", str(tmp_path / "nowhere.zip"), str(site), str(dist)]
    assert (torch_version(path), nccl_version(path)) == ("2.9.1+cu128", "2.27.5")
    (site / "torch-2.11.0.dist-info").mkdir(parents=True)
    assert torch_version(path) == "2.11.0", "the first on its path is what it imports"
    (dist / "nvidia_nccl_cu13-2.28.9.dist-info").mkdir()
    assert nccl_version(path) is None, "either may be the one"
    assert torch_version([]) is None
