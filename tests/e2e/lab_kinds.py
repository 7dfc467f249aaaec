"""Releases in the lab: how each is started and asked, and what the lab's model says of its times."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from eaglelab.lab.model import read_model


@dataclass(frozen=True)
class Kind:
    """A release, how it is started, and the worker that then runs. `late`: the result is read one cycle later."""

    name: str
    version: str
    worker: str
    flags: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    late: bool = False

    @property
    def v2(self) -> bool:
        return self.worker.endswith("V2")


def ask(port: int, text: str, tokens: int, rid: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        sampling = {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0}
        body = {"text": text, "rid": rid, "sampling_params": sampling}
        connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
        return dict(json.loads(connection.getresponse().read()))
    finally:
        connection.close()


def phases_of(kind: Kind, steps: int) -> dict[str, float]:
    """Milliseconds of each phase at batch size 1, by the lab's model."""
    model = read_model(None)
    gpu, host = model.gpu_ms, model.host_ms
    rows = sorted(gpu.verify.items())
    (k0, ms0), (k1, ms1) = next(pair for pair in pairwise(rows) if pair[0][0] <= steps <= pair[1][0])
    other = host.extend + host.schedule - gpu.extend  # the host's work that the GPU's extend does not hide
    if kind.v2:
        other = gpu.copy_ if kind.late else gpu.copy_ + host.schedule
    return {
        "draft": max((steps - 1) * gpu.draft_forward, 0.0 if kind.late else host.draft),
        "verify": ms0 + (ms1 - ms0) * (steps - k0) / (k1 - k0),
        "extend": gpu.extend,
        "other": other,
    }
