"""What differs between two runs, and which of it makes their figures unlike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evidence_kit import measurement, run

from eaglelab.compare.changes import changes
from eaglelab.runs.evidence import RunEvidence

RATES = (100.0, 101.0)


def one(name: str = "a", **more: Any) -> RunEvidence:
    return run(name, measurement(2, RATES), **more)


def between(first: RunEvidence, second: RunEvidence) -> dict[str, tuple[str, str, bool]]:
    return {each.what: (each.reference, each.candidate, each.unlike) for each in changes([first], [second])}


def gpus(*names: str, driver: str = "1.0") -> dict[str, Any]:
    return {"gpus": [{"name": name, "driver_version": driver} for name in names]}


def test_equal_runs_differ_in_nothing() -> None:
    assert between(one(), one()) == {}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"sglang": "0.5.9"}, {"sglang": "0.5.12"}, {"sglang": ("0.5.9", "0.5.12", False)}),
        ({"facts": gpus("H200", "H200")}, {"facts": gpus("H100")}, {"GPU": ("2 x H200", "1 x H100", True)}),
        (
            {"facts": gpus("H200", driver="1.0")},
            {"facts": gpus("H200", driver="2.0")},
            {"driver": ("1.0", "2.0", False)},
        ),
        ({}, {"simulated": "simulated GPU"}, {"figures": ("of real hardware", "simulated GPU", True)}),
        ({"facts": {"machine": "x"}}, {"facts": {"machine": "y"}}, {"machine": ("x", "y", True)}),
        (
            {"inventory": {"server": {"model_path": "/m/a", "tp_size": 8}}},
            {"inventory": {"server": {"model_path": "/m/b", "tp_size": 4}}},
            {"model": ("/m/a", "/m/b", True), "tensor parallel size": ("8", "4", True)},
        ),
        ({"clocks": 1980}, {"clocks": 1960}, {}),
        (
            {"clocks": 1980},
            {"clocks": 1500},
            {
                "SM clock before": ("1980 MHz", "1500 MHz", True),
                "SM clock after": ("1980 MHz", "1500 MHz", True),
            },
        ),
        ({}, {"workload": {"output_len": 1000}}, {"output length": ("101", "1000", True)}),
        (
            {"workload": {"num_prompts": 8}},
            {"workload": {"num_prompts": 16}},
            {"number of requests": ("8", "16", False)},
        ),
        (
            {"fingerprint": {"env": {"NCCL_ALGO": "Ring"}}},
            {"fingerprint": {"env": {"NCCL_ALGO": "Tree", "X": "1"}}},
            {"variable NCCL_ALGO": ("Ring", "Tree", False), "variable X": ("not set", "1", False)},
        ),
        (
            {"fingerprint": {"command": ["python", "--mem-fraction-static", "0.8", "--port", "1"]}},
            {
                "fingerprint": {
                    "command": ["python", "--mem-fraction-static=0.9", "--disable-radix-cache", "--port", "2"]
                }
            },
            {
                "flag mem-fraction-static": ("0.8", "0.9", False),
                "flag disable-radix-cache": ("not set", "on", False),
            },
        ),
        (
            {"fingerprint": {"workers": {"srt/w.py": "a" * 64}, "patch": "p 1"}},
            {"fingerprint": {"workers": {"srt/w.py": "b" * 64}, "patch": "p 2"}},
            {"w.py": ("a" * 12, "b" * 12, False), "patch": ("p 1", "p 2", False)},
        ),
        (
            {"server_info": {"attention_backend": "fa3", "port": 1, "only_here": 1}},
            {"server_info": {"attention_backend": "flashinfer", "port": 2}},
            {"server's attention_backend": ("fa3", "flashinfer", False)},
        ),
    ],
)
def test_what_differs_is_named_with_both_values(first, second, expected) -> None:
    assert between(one(**first), one(**second)) == expected


def test_what_only_one_side_knows_is_no_difference() -> None:
    bare = replace(one(), loads=(), facts={}, sglang=None)
    assert between(bare, one(facts=gpus("H200"), server_info={"a": 1})) == {}


def test_the_probe_on_against_off_is_unlike() -> None:
    def with_probe(setting: str) -> RunEvidence:
        evidence = one()
        return replace(
            evidence, loads=tuple(replace(load, server={"env": {"EAGLE3_PROFILE": setting}}) for load in evidence.loads)
        )

    assert between(with_probe("1"), with_probe("0")) == {"probe": ("on", "off", True)}


def test_another_client_is_unlike() -> None:
    found = between(one(), replace(one(), measured=None, serving={"runs": []}))
    assert found["client"] == ("built-in", "SGLang's bench_serving", True)


def test_what_a_run_itself_varies_is_no_difference_between_runs() -> None:
    def sweep(name: str, *algorithms: str) -> RunEvidence:
        evidence = one(name)
        (load,) = evidence.loads
        varied = [replace(load, fingerprint={**load.fingerprint, "env": {"NCCL_ALGO": each}}) for each in algorithms]
        return replace(evidence, loads=tuple(varied))

    assert between(sweep("a", "Ring", "Tree"), sweep("b", "Tree", "Ring")) == {}
