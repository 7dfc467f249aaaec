"""Which EAGLE worker a release of SGLang runs, read in all releases from 0.4.1.post4 to 0.5.23."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Expected", "expected_worker", "file_of_worker", "release_numbers"]

_V1, _V2 = "EAGLEWorker", "EAGLEWorkerV2"
_FILES = {
    _V1: "eagle_worker.py",
    _V2: "eagle_worker_v2.py",
    "StandaloneWorker": "eagle_worker.py",
    "StandaloneWorkerV2": "eagle_worker_v2.py",
    "MultiLayerEagleWorker": "multi_layer_eagle_worker.py",
    "MultiLayerEagleWorkerV2": "multi_layer_eagle_worker_v2.py",
    "FrozenKVMTPWorker": "frozen_kv_mtp_worker.py",
    "FrozenKVMTPWorkerV2": "frozen_kv_mtp_worker_v2.py",
}
"""Where the decode branch of each is: the standalone ones inherit theirs."""

_ON = ("1", "true", "yes", "y")
_OFF = ("0", "false", "no", "n")


@dataclass(frozen=True)
class Expected:
    """The class that will run, the file of its decode branch, and why."""

    worker: str
    file: str
    why: str


def file_of_worker(worker: str) -> str | None:
    """The file with the decode branch of a class; None for an unknown class."""
    return _FILES.get(worker)


def release_numbers(version: str) -> tuple[int, ...] | None:
    """`0.5.12.post1` as (0, 5, 12, 1), so that releases compare; None for what names no release."""
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)(?:\.post(\d+))?", version)
    numbers = tuple(int(part) for part in match.groups() if part is not None) if match else ()
    return numbers if any(numbers) else None


def expected_worker(
    version: str, algorithm: str, topk: int, flags: Mapping[str, object], env: Mapping[str, str]
) -> Expected | None:
    """The worker for EAGLE and EAGLE3; None for other algorithms, multi-layer drafts, and releases that are not known.

    `flags` are those of the server, named without the leading dashes.
    """
    release = release_numbers(version)
    if release is None or algorithm not in ("EAGLE", "EAGLE3") or flags.get("enable-multi-layer-eagle"):
        return None
    two, why = _is_v2(release, algorithm, topk, flags, env.get("SGLANG_ENABLE_SPEC_V2", "").lower())
    worker = _V2 if two else _V1
    return Expected(worker, _FILES[worker], f"SGLang {version}: {why}")


def _is_v2(
    release: tuple[int, ...], algorithm: str, topk: int, flags: Mapping[str, object], switch: str
) -> tuple[bool, str]:
    if release >= (0, 5, 13):
        return True, "the only one from 0.5.13 on"
    if release >= (0, 5, 11):
        if topk > 1:
            return False, f"top-k {topk} needs the one without overlap"
        if flags.get("disable-overlap-schedule"):
            return False, "disable-overlap-schedule"
        return (False, "SGLANG_ENABLE_SPEC_V2=0") if switch in _OFF else (True, "the default from 0.5.11 on")
    if release >= (0, 5, 4, 1):
        wanted = switch in _ON and (algorithm == "EAGLE" or release >= (0, 5, 7))
        return (True, "SGLANG_ENABLE_SPEC_V2=1") if wanted else (False, "the default before 0.5.11")
    if release >= (0, 5, 3, 2) and flags.get("enable-beta-spec") and algorithm == "EAGLE":
        return True, "enable-beta-spec"
    return False, "the only one, or the default, before 0.5.11"
