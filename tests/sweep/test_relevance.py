"""Which all-reduce runs, before a load is spent on NCCL's settings."""

from __future__ import annotations

import pytest

from eaglelab.host import FlagValue
from eaglelab.sweep.relevance import all_reduce_bytes, fully_linked, is_nccl_setting, nccl_relevance

EIGHT_LINKED = "\n".join(
    [
        "\tGPU0\tGPU1\tGPU2\tCPU Affinity",
        *(f"GPU{i}\t" + "\t".join("X" if i == j else "NV18" for j in range(3)) + "\t0-47" for i in range(3)),
        "",
        "Legend:",
        "  NV#  = Connection",
    ]
)


def relevance(
    world: int = 8,
    nodes: int = 1,
    linked: bool | None = True,
    flags: dict[str, FlagValue] | None = None,
    size: int = 98304,
) -> bool | None:
    return nccl_relevance(
        world=world, nodes=nodes, linked=linked, flags=flags or {}, message_bytes=[1024, size]
    ).matters


def test_the_message_of_the_public_example_has_98_kilobytes() -> None:
    assert all_reduce_bytes(1, 5, 8192) == 98304
    assert all_reduce_bytes(64, 3, 7168) == 3670016
    assert all_reduce_bytes(1, None, 8192) == 16384


def test_one_nvlink_node_never_reaches_nccl_in_decode() -> None:
    assert relevance() is False
    assert relevance(world=2) is False
    assert relevance(size=8 << 20) is False


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"world": 1}, False),
        ({"nodes": 2}, True),
        ({"flags": {"disable-custom-all-reduce": True}}, True),
        ({"flags": {"disable-custom-all-reduce": False}}, False),
        ({"world": 3}, True),
        ({"world": 16}, True),
        ({"size": (8 << 20) + 1}, True),
        ({"linked": False}, True),
        ({"linked": False, "world": 2}, None),
        ({"linked": None}, None),
        ({"flags": {"enable-mscclpp": True}}, None),
    ],
)
def test_what_sends_the_all_reduce_to_nccl(changes: dict[str, object], expected: bool | None) -> None:
    assert relevance(**changes) is expected  # type: ignore[arg-type]


def test_every_answer_says_why() -> None:
    found = nccl_relevance(world=8, nodes=1, linked=True, flags={}, message_bytes=[98304])
    assert found.why == "SGLang's own all-reduce carries it: 8 GPUs, 0.0938 MiB at most (its limit is 8)"


def test_without_a_known_model_size_it_cannot_be_told_unless_something_else_decides() -> None:
    unknown = nccl_relevance(world=8, nodes=1, linked=True, flags={}, message_bytes=[])
    assert unknown.matters is None
    assert "the model's hidden size is not known" in unknown.why
    assert nccl_relevance(world=1, nodes=1, linked=True, flags={}, message_bytes=[]).matters is False
    off = nccl_relevance(world=8, nodes=1, linked=True, flags={"disable-custom-all-reduce": True}, message_bytes=[])
    assert off.matters is True


def test_a_topology_is_read_as_nvidia_smi_prints_it() -> None:
    assert fully_linked(EIGHT_LINKED) is True
    assert fully_linked(EIGHT_LINKED.replace("NV18", "\x1b[4mPHB\x1b[0m", 1)) is False
    assert fully_linked("") is None
    assert fully_linked("GPU0\tX\tNV18") is True  # one GPU: nothing to join


def test_settings_that_speak_to_nccl_only_are_known() -> None:
    assert is_nccl_setting("NCCL_ALGO")
    assert is_nccl_setting("enable-nccl-nvls")
    assert not is_nccl_setting("disable-custom-all-reduce")
    assert not is_nccl_setting("CUDA_VISIBLE_DEVICES")
