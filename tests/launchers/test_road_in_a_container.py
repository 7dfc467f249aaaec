"""The road on the embedded lab whose server runs in a real Podman container: deploy, rollback, the image as it was."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from podmankit import Podman
from scene import Scene, processes_of

IMAGE = "localhost/eaglelab-lab:1"
WORKERS = "lab/python/sglang/srt/speculative"


@pytest.fixture(scope="module")
def scene(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A lab whose host has Podman, with the lab's SGLang in an image, and an inventory that says so."""
    made = Scene.make(tmp_path_factory.mktemp("project"))
    made.invoke("lab-up", "--load-seconds", "0.5")
    home = made.folder / ".lab/host/home"

    def fill(root: Path) -> None:
        shutil.copytree(home / "sglang/python", root / "lab/python", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(home.parent / "standin", root / "lab/standin", ignore=shutil.ignore_patterns("__pycache__"))

    mark = (made.folder / ".lab/mark").read_text().strip()
    podman.build(IMAGE, fill, PYTHONPATH="/lab/python:/lab/standin", EAGLELAB_LAB=mark, SPT_NOENV="1")
    wrapper = home / "bin/podman"
    lines = [f'export {name}="{value}"' for name, value in podman.env.items()]
    wrapper.write_text("\n".join(["#!/bin/sh", *lines, f'exec "{podman.bin}/podman" "$@"', ""]))
    wrapper.chmod(0o755)
    inventory = made.folder / "inventory.yaml"
    own = "    server:\n      tp_size: 1\n"
    assert own in inventory.read_text()
    options = f"      container: {{engine: podman, image: '{IMAGE}', folders: ['{home}/models']}}\n"
    inventory.write_text(inventory.read_text().replace(own, f"{own}      launcher: container\n{options}"))
    yield made
    made.invoke("lab-down")


def test_deploy_profiling_runs_the_patched_worker_and_rollback_leaves_the_image_as_it_was(
    scene: Scene, podman: Podman
) -> None:
    before = podman.ask("image", "inspect", IMAGE)
    deploy = scene.invoke("deploy-profiling", "--json")
    assert "container eaglelab-" in deploy.stderr
    assert "the patched code ran in EAGLEWorker" in deploy.stderr
    [container] = podman.containers()
    assert container in scene.invoke("status").stdout
    patched = podman.ask(
        "exec", container, "/usr/bin/python3", "-S", "-c", f"print(open('/{WORKERS}/eagle_worker.py').read())"
    )
    assert "# eaglelab:eagle3-profile" in patched
    assert "no load is needed" in scene.invoke("deploy-profiling", "--json").stderr
    rollback = scene.invoke("rollback")
    assert "eagle_worker.py: back to the original" in rollback.stdout
    assert podman.containers() == []
    assert podman.ask("image", "inspect", IMAGE) == before
    released = (scene.folder / ".lab/host/home/sglang/python/sglang/srt/speculative/eagle_worker.py").read_text()
    copies = list((scene.folder / ".lab/host/home/.local/state/eaglelab/images").rglob("eagle_worker.py"))
    assert [path.read_text() for path in copies] == [released]
    assert "nothing to do" in scene.invoke("rollback").stdout
    assert not [line for line in processes_of(str(scene.folder)) if "launch_server" in line]
