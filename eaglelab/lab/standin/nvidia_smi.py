"""`nvidia-smi` of the lab host: the queries that tools make, answered for the schedulers that live now."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .settings import Settings

__all__ = ["answer", "main"]

IDLE_MIB = 4


def _applications(folder: Path) -> list[tuple[int, int, int]]:
    """(pid, GPU index, MiB) of each scheduler that still lives."""
    found = []
    for file in sorted(folder.glob("gpu-*")):
        pid = int(file.name.partition("-")[2])
        if _is_scheduler(pid):
            index, used = file.read_text(encoding="utf-8").split()
            found.append((pid, int(index), int(used)))
    return found


def _is_scheduler(pid: int) -> bool:
    """Whether a process of this lab has the pid (it may have been given to another since)."""
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"EAGLELAB_LAB={os.environ.get('EAGLELAB_LAB', '')}\0".encode() in environ


def _gpu(index: int, total: int, used: int) -> dict[str, str]:
    return {
        "index": str(index),
        "name": "simulated GPU",
        "gpu_name": "simulated GPU",
        "uuid": f"GPU-00000000-0000-0000-0000-{index:012d}",
        "driver_version": "0.0 (simulated)",
        "memory.total": f"{total} MiB",
        "memory.used": f"{used} MiB",
        "memory.free": f"{total - used} MiB",
        "utilization.gpu": f"{100 if used > IDLE_MIB else 0} %",
        "temperature.gpu": "45",
        "clocks.sm": "1980 MHz",
        "clocks.mem": "3201 MHz",
        "clocks_throttle_reasons.active": "0x0000000000000000",
        "power.draw": "400.00 W" if used > IDLE_MIB else "75.00 W",
    }


def _table(rows: list[dict[str, str]], fields: list[str], form: set[str]) -> str:
    lines = [] if "noheader" in form else [", ".join(fields)]
    for row in rows:
        cells = (row.get(name, "[N/A]") for name in fields)
        lines.append(", ".join(cell.rpartition(" ")[0] or cell if _has_unit(cell, form) else cell for cell in cells))
    return "".join(f"{line}\n" for line in lines)


def _has_unit(cell: str, form: set[str]) -> bool:
    return "nounits" in form and cell.endswith((" MiB", " %", " MHz", " W"))


def answer(argv: Sequence[str], model: dict[str, Any], folder: Path) -> str:
    """The output for a command line; `folder` holds one file a scheduler (`gpu-PID`: index and MiB)."""
    options = {name: value for name, _, value in (word.partition("=") for word in argv)}
    form = set(options.get("--format", "").split(","))
    applications = _applications(folder)
    used = {index: IDLE_MIB + sum(mib for _, i, mib in applications if i == index) for index in range(model["gpus"])}
    gpus = [_gpu(index, model["gpu_memory_mib"], used[index]) for index in range(model["gpus"])]
    for query in ("--query-compute-apps", "--query-gpu"):
        if query in options:
            fields = [name.strip() for name in options[query].split(",")]
            rows = gpus if query == "--query-gpu" else [_application(*one, gpus) for one in applications]
            return _table(rows, fields, form)
    lines = [f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})" for gpu in gpus]
    return "".join(f"{line}\n" for line in lines)


def _application(pid: int, index: int, mib: int, gpus: list[dict[str, str]]) -> dict[str, str]:
    memory = f"{mib} MiB"
    return {
        "pid": str(pid),
        "used_memory": memory,
        "used_gpu_memory": memory,
        "process_name": "sglang::scheduler",
        "name": "sglang::scheduler",
        "gpu_uuid": gpus[index]["uuid"],
        "gpu_name": gpus[index]["name"],
    }


def main() -> int:
    settings = Settings()
    sys.stdout.write(answer(sys.argv[1:], settings.model, settings.folder / "run"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
