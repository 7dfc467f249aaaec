"""What nvidia-smi says of the clocks, sampled beside a piece of work."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpu.validate.clocks import Sample, Watch, gpu_count, read_sample, reasons, summary

IDLE = "345, 3201, 31, 75.61, 0x0000000000000001"
BUSY = "1980, 3201, 44, 312.20, 0x0000000000000004"


def test_a_line_of_nvidia_smi_is_read() -> None:
    assert read_sample(BUSY) == Sample(1980.0, 3201.0, 44.0, 312.2, 4)
    assert read_sample("1980, 3201, [N/A], 312.20, 0x0") is None
    assert read_sample("") is None


@pytest.mark.parametrize(
    ("bits", "names"), [(0, []), (1, ["idle"]), (0x24, ["power cap", "software thermal slowdown"])]
)
def test_what_holds_the_clocks_back_has_a_name(bits: int, names: list[str]) -> None:
    assert reasons(bits) == names


def test_samples_of_an_idle_gpu_are_counted_and_not_summed() -> None:
    samples = [Sample(345, 3201, 31, 75, 1), Sample(1980, 3201, 44, 300, 4), Sample(1900, 3201, 46, 320, 0)]
    assert summary(samples) == {
        "samples": 3,
        "at_work": 2,
        "held_back": {"power cap": 1},
        "sm_mhz": [1900, 1940, 1980],
        "memory_mhz": [3201, 3201, 3201],
        "celsius": [44, 45, 46],
        "watts": [300, 310, 320],
    }
    assert summary(samples[:1])["sm_mhz"] == []


def test_clocks_are_read_before_after_and_meanwhile(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"""#!/bin/sh
echo "$*" >> {tmp_path}/asked
case "$*" in *--loop=1*) echo "{BUSY}"; echo "{BUSY}"; touch {tmp_path}/sampled; exec sleep 60;; *) echo "{IDLE}";; esac
"""
    )
    program.chmod(0o755)
    with Watch(1, str(program)) as watch:
        while not (tmp_path / "sampled").exists():
            time.sleep(0.01)
    assert (watch.data["samples"], watch.data["sm_mhz"], watch.data["held_back"]) == (
        2,
        [1980, 1980, 1980],
        {"power cap": 2},
    )
    assert watch.data["before"] == watch.data["after"]
    assert watch.data["before"] == {"sm_mhz": 345, "celsius": 31, "watts": 75.61, "held_back": ["idle"]}
    assert watch.data["series"]["rows"] == [[1980.0, 44.0, 312.2, 4]] * 2
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 3
    assert all("--id=1" in line for line in asked)


def test_a_machine_without_nvidia_smi_has_no_clocks() -> None:
    with Watch(0, "/there/is/no/such/program") as watch:
        pass
    assert watch.data == {}


def test_gpus_are_counted_and_there_are_none_where_nobody_says(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H200 (UUID: GPU-1)'; echo 'GPU 1: NVIDIA H200 (UUID: GPU-2)'\n")
    program.chmod(0o755)
    assert gpu_count(str(program)) == 2
    assert gpu_count(str(tmp_path / "gone")) == 0
