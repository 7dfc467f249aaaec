"""The whole road over OpenSSH's own server: the lab gives the host's files, sshd the way there."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from scene import Scene, picture
from serverkit import free_port
from sshd import Sshd

pytestmark = pytest.mark.sshd


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def host(scene: Scene, sshd: Sshd) -> Path:
    """Writes an inventory whose host is reached through sshd; returns the SGLang package there."""
    home = scene.folder / ".lab/host/home"
    entry = {
        "address": "127.0.0.1",
        "port": sshd.port,
        "user": getpass.getuser(),
        "key": str(sshd.key),
        "known_hosts": str(sshd.known_hosts),
        "ssh_config": False,
        "connect_timeout": 60,
        "python": str(home / "ml-env/bin/python3"),
        "sglang": str(home / "sglang"),
        "log": str(home / "logs/over-sshd.log"),
        "expected_load": 1,
        "server": {
            "port": free_port(),
            "model_path": str(home / "models/target"),
            "speculative": {"draft_model_path": str(home / "models/draft")},
        },
    }
    stranger = {**entry, "known_hosts": str(sshd.folder / "nobody")}
    away = {**entry, "port": free_port()}
    hosts = {"real": entry, "stranger": stranger, "away": away}
    (scene.folder / "real.yaml").write_text(yaml.safe_dump({"default_host": "away", "hosts": hosts}))
    return home / "sglang/python/sglang"


def test_deploy_and_rollback_over_a_real_ssh_server(scene: Scene, host: Path) -> None:
    before = picture(host)
    there = ("--inventory", "real.yaml", "--host", "real", "--json")
    done = scene.invoke("deploy-profiling", "--tokens", "200", *there)
    profile = json.loads((Path(done.json["bundle"]) / "profile.json").read_text())
    assert profile["settings"][0]["worker"] == "EAGLEWorker"
    assert picture(host) != before
    assert scene.invoke("status", *there).json["hosts"]["real"]["alive"] is True
    scene.invoke("rollback", *there)
    assert picture(host) == before
    assert scene.invoke("rollback", *there).json["hosts"]["real"]["rollback"]["nothing"] is True


def test_a_host_whose_key_is_not_known_is_refused_with_the_line_that_helps(scene: Scene, host: Path) -> None:
    done = scene.invoke("doctor", "--inventory", "real.yaml", "--host", "stranger", code=1)
    assert "ssh-keyscan -p" in done.stderr


def test_an_unreachable_default_host_points_to_the_lab(scene: Scene, host: Path) -> None:
    scene_env = dict(scene.env)
    done = Scene(scene.folder, {**scene_env, "EAGLELAB_HOST": "away"}).invoke(
        "doctor", "--inventory", "real.yaml", code=1
    )
    assert "cannot be reached" in done.stderr
    assert "--host sim" in done.stderr
