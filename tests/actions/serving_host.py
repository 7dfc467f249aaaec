"""A host in memory whose bench_serving runs are over at once."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from fake_host import STATE, FakeHost, refusal

__all__ = ["RECORDED", "ServingHost"]

RECORDED = Path(__file__).parents[1] / "cases" / "serving"


class ServingHost(FakeHost):
    """`runs` are those that send something, by name. `rates`: output tok/s by the server's steps; each run of a load is 1 % faster than the one before.

    `output` and `code` are what the next runs say and end with; `row` False: they write none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rates: dict[int | None, float] = {None: 80.0, 2: 100.0, 3: 90.0}
        self.runs: dict[str, dict[str, Any]] = {}
        self.begun_commands: list[str] = []
        self.output = "Starting warmup with 1 sequences...\n"
        self.code: int | None = 0
        self.row = True
        self.answered: int | None = None

    def op_load_command(self, id: str, run: str, command: Any, env: Any, cwd: str) -> Any:  # noqa: A002
        assert cwd == STATE
        if id in self.begun_commands:
            return {"state": "done"}
        if command[-1] != "--help":
            self.runs[id] = {"command": command, "env": env}
        self.begun_commands.append(id)
        base = f"{STATE}/runs/{run}/load/{id}"
        self.files[f"{base}.out"] = self.output.encode()
        if command[-1] == "--help":
            return {"state": "running"}
        option = {name: value for name, value in itertools.pairwise(command) if name.startswith("--")}
        asked = int(option["--num-prompts"])
        if self.row and self.code == 0:
            row = json.loads((RECORDED / "0.5.9.jsonl").read_text())
            rate = self.rates[(self.record or {})["steps"]] * 1.01 ** (int(option["--seed"]) - 42)
            completed = asked if self.answered is None else self.answered
            row |= {"output_throughput": rate, "completed": completed, "max_concurrency": 1}
            self.files[option["--output-file"]] = json.dumps(row).encode() + b"\n"
        return {"state": "running"}

    def op_load_poll(self, id: str, run: str, offset: int) -> Any:  # noqa: A002
        if id not in self.begun_commands:
            raise refusal("no-load", f"run {run} has no load named {id}")
        signal = None if self.code is not None else 15
        end = {"reason": "finished", "code": self.code, "signal": signal, "seconds": 12.3}
        data = b"".join(json.dumps(line).encode() + b"\n" for line in ({"begin": {}}, {"end": end}))
        about = {"state": "done", "progress": None, "next": len(data), "more": False}
        return about, data[offset:]
