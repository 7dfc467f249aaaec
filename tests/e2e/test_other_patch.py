"""`deploy-profiling --patch NAME` takes any patch; one that writes to the log only has no report to make."""

from __future__ import annotations

from pathlib import Path

from scene import Scene, picture


def test_a_patch_without_records_is_deployed_proved_and_rolled_back(scene: Scene) -> None:
    package = scene.folder / ".lab/host/home/sglang/python/sglang"
    before = picture(package)
    done = scene.invoke("deploy-profiling", "--patch", "verify-shapes", "--tokens", "64", "--json")
    log = (Path(done.json["bundle"]) / "server.log").read_text()
    assert "EAGLE3_SHAPES active: class=EAGLEWorker rank=0/1" in log
    assert "EAGLE3_SHAPES batch_size=1 draft_tokens=3 context_sum=" in log
    assert not (Path(done.json["bundle"]) / "profile.json").exists()
    refused = scene.invoke("deploy-profiling", code=1)  # two patches would time each other
    assert "this file carries the patch verify-shapes" in refused.stderr
    scene.invoke("rollback")
    assert picture(package) == before
