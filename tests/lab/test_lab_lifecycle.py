"""lab-up and lab-down."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from labkit import VERSION, log_in, run, wait_until

from eaglelab.errors import HostError, InputError
from eaglelab.lab import processes, provision
from eaglelab.lab.lab import LabInfo, LabOptions, down, info, up


@pytest.mark.lab
def test_up_twice_changes_nothing_and_other_options_are_refused(lab: LabInfo) -> None:
    options = LabOptions(root=Path(lab.home).parents[1], sglang=VERSION, load_seconds=0.2)
    said: list[str] = []
    assert up(options, said.append) == lab
    assert said == [f"the lab is up already: lab@127.0.0.1:{lab.port}, sglang {VERSION}"]
    with pytest.raises(InputError, match=r"other options is up \(load_seconds\)") as refused:
        up(dataclasses.replace(options, load_seconds=9.0), said.append)
    assert refused.value.hint == "invoke lab-down"


@pytest.mark.lab
def test_down_ends_every_process_and_removes_the_folder(package: Path, tmp_path: Path) -> None:
    root = tmp_path / ".lab"
    lab = up(LabOptions(root=root, sglang=VERSION, load_seconds=0.2), print)
    with log_in(lab) as client:
        launch = (
            f"setsid -f ~/ml-env/bin/python3 -m sglang.launch_server --model-path ~/models/target "
            f"--port {lab.server_port} >~/logs/sglang.log 2>&1 </dev/null; "
            "until grep -q 'Load weight begin' ~/logs/sglang.log; do sleep 0.01; done"
        )
        assert run(client, launch)[0] == 0
    # The SSH server, the launcher, the scheduler, the detokenizer.
    wait_until(lambda: len(processes.marked(lab.mark)) >= 4, "four processes are up")
    said: list[str] = []
    down(root, said.append)
    assert processes.marked(lab.mark) == []
    assert not root.exists()
    assert info(root) is None
    down(root, said.append)
    assert said[1:] == ["no lab here"]


@pytest.mark.lab
def test_what_a_killed_lab_left_is_cleared_by_the_next_up(package: Path, tmp_path: Path) -> None:
    options = LabOptions(root=tmp_path / ".lab", sglang=VERSION)
    first = up(options, print)
    processes.end_marked(first.mark)
    assert info(options.root) is None
    said: list[str] = []
    try:
        second = up(options, said.append)
        assert second.mark != first.mark
        assert said[0] == "clearing what an earlier lab left"
    finally:
        down(options.root, print)


def test_a_folder_that_is_no_lab_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(InputError, match="no lab"):
        down(tmp_path, print)
    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"load_seconds": -1.0}, "--load-seconds"), ({"clock_rate": 0.0}, "--clock-rate"), ({"port": 70000}, "--port")],
)
def test_a_wrong_option_is_refused(tmp_path: Path, options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LabOptions(root=tmp_path, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["latest", "0.5", "0.5.9; rm", "../x"])
def test_what_is_no_version_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(InputError, match="is no SGLang version"):
        provision.package_of(version, tmp_path, print)


def test_a_version_that_cannot_be_had_says_why_and_what_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", str(tmp_path)), ("PIP_CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(name, value)
    cache = tmp_path / "cache"
    for version in ("0.5.10", "0.5.9"):
        (cache / f"sglang-{version}").mkdir(parents=True)
    with pytest.raises(
        HostError, match=r"pip could not get sglang 9\.9\.9: ERROR: No matching distribution"
    ) as refused:
        provision.package_of("9.9.9", cache, print)
    assert refused.value.hint == "versions already here: 0.5.9, 0.5.10"
    assert sorted(folder.name for folder in cache.iterdir()) == ["sglang-0.5.10", "sglang-0.5.9"]


def test_the_cache_is_where_the_environment_says() -> None:
    assert provision.cache_folder({"EAGLELAB_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert provision.cache_folder({"XDG_CACHE_HOME": "/b"}) == Path("/b/eaglelab")
    assert provision.cache_folder({}) == Path.home() / ".cache" / "eaglelab"
