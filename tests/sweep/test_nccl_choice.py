"""Which values of NCCL_ALGO and NCCL_PROTO end a server of several GPUs."""

from __future__ import annotations

from itertools import combinations

import pytest

from eaglelab.host import FlagValue
from eaglelab.sweep.nccl_choice import Conflict, nccl_conflict

NVLS = {"enable-nccl-nvls": True}


def conflict(
    algo: str = "",
    proto: str = "",
    world: int = 8,
    nodes: int = 1,
    version: str | None = "2.28.9",
    flags: dict[str, FlagValue] | None = None,
    **more: str,
) -> Conflict | None:
    env = {"NCCL_ALGO": algo, "NCCL_PROTO": proto, **more, "OTHER": "Tree"}
    return nccl_conflict(env, flags or {}, world=world, nodes=nodes, version=version)


def test_the_value_that_ended_a_real_server_is_refused_with_what_to_set_instead() -> None:
    found = conflict("Tree", world=2)
    assert found == Conflict(
        "NCCL_ALGO=Tree leaves NCCL nothing for AllGather (Ring can): "
        "from NCCL 2.24 on that ends the server while it starts",
        instead="allreduce:Tree",
        certain=True,
    )


@pytest.mark.parametrize(
    ("algo", "proto"),
    [
        ("", ""),
        ("Ring", ""),  # these four came up on two GPUs, with NCCL 2.28.9
        ("", "LL"),
        ("", "LL128"),
        ("", "Simple"),
        ("allreduce:Tree", ""),
        ("tree,RING", ""),
        ("^Tree", ""),
        ("Ring;allreduce:Tree", ""),
        ("ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring", ""),
        ("", "^LL128;allreduce:LL128"),
        ("reduce:Tree", ""),  # nothing that a server calls
        ("allreduce:tree:ring", ""),  # NCCL reads two words of a part
        (";", ""),
    ],
)
def test_what_nccl_takes_is_let_through(algo: str, proto: str) -> None:
    assert conflict(algo, proto) is None


@pytest.mark.parametrize(
    ("algo", "proto", "why", "instead"),
    [
        ("Tree", "LL", "NCCL_ALGO=Tree NCCL_PROTO=LL leaves NCCL nothing for AllGather (Ring can)", "allreduce:Tree"),
        ("^Ring", "", "nothing for AllGather (Ring can)", "allreduce:^Ring"),
        ("Ring;allgather:Tree", "", "nothing for AllGather", None),
        ("PAT", "", "nothing for AllReduce (Tree, Ring can)", None),
        ("NVLS", "", "nothing for AllReduce (Tree, Ring can)", None),
        ("allreduce:NVLS", "", "nothing for AllReduce (Tree, Ring can)", None),
        ("NVLSTree", "", "nothing for AllReduce", None),
        ("CollNetDirect", "", "nothing for AllReduce", None),
        ("allreduce:CollNetChain", "", "nothing for AllReduce", None),
        ("", "^LL,LL128,Simple", "NCCL_PROTO=^LL,LL128,Simple leaves NCCL nothing for AllReduce:", None),
        ("Rign", "", "NCCL_ALGO=Rign: NCCL knows no 'Rign' (Tree, Ring, CollNetDirect,", None),
        ("Ring, Tree", "", "NCCL knows no ' Tree'", None),
        ("", "LL256", "NCCL_PROTO=LL256: NCCL knows no 'LL256' (LL, LL128, Simple)", None),
        ("gather:Ring", "", "NCCL knows no function 'gather' (Broadcast,", None),
        ("broadcast:", "", "NCCL knows no 'broadcast'", None),
        ("Ring;Tree", "", "every part but the first has to name its function (Tree)", None),
        (";Ring", "", "every part but the first has to name its function (Ring)", None),
    ],
)
def test_what_ends_the_server_while_it_starts_is_refused(algo: str, proto: str, why: str, instead: str | None) -> None:
    found = conflict(algo, proto)
    assert found is not None
    assert why in found.why
    assert found.why.endswith("ends the server while it starts")
    assert (found.instead, found.certain) == (instead, True)


@pytest.mark.parametrize("algo", ["broadcast:Tree", "Ring;broadcast:NVLS"])
def test_what_ends_it_only_once_a_request_samples_is_less_than_certain(algo: str) -> None:
    found = conflict(algo)
    assert found is not None
    assert "nothing for Broadcast (Ring can)" in found.why
    assert found.why.endswith("ends the server at the first request that samples")
    assert not found.certain


def test_on_one_gpu_nothing_is_asked_of_nccl() -> None:
    assert conflict("Tree", world=1) is None
    assert conflict("Rign", world=1) is None


def test_nvls_is_there_where_sglang_is_told_to_leave_it_on() -> None:
    algo = "NVLS;broadcast:Ring"
    assert conflict(algo) is not None
    assert conflict(algo, NCCL_NVLS_ENABLE="0") is not None
    assert conflict(algo, NCCL_NVLS_ENABLE="1") is None
    assert conflict(algo, flags={"enable-nccl-nvls": True}, NCCL_NVLS_ENABLE="0") is None, "SGLang sets it to 1"
    assert conflict(algo, flags={"enable-symm-mem": True}, world=2) is None
    assert conflict(algo, flags={"enable-nccl-nvls": False}) is not None
    found = conflict("allreduce:NVLS", "LL", flags=NVLS)
    assert found is not None
    assert "nothing for AllReduce (Tree, Ring can)" in found.why, "NVLS has the protocol Simple only"
    whole = conflict("NVLS", flags=NVLS)
    assert whole is not None
    assert (whole.instead, "nothing for Broadcast" in whole.why) == ("allreduce:NVLS", True)


def test_on_several_machines_what_nccls_own_files_may_switch_on_is_taken_to_be_there() -> None:
    several = {"world": 16, "nodes": 2}
    assert conflict("CollNetDirect;broadcast:Ring", **several) is None
    pat = "Tree;allgather:PAT;broadcast:Ring"
    assert conflict(pat, world=2, nodes=2) is None, "left to itself PAT is for one GPU a machine"
    assert conflict(pat, world=2, nodes=2, NCCL_PAT_ENABLE="0") is not None
    assert conflict(pat, **several) is not None
    assert conflict(pat, **several, NCCL_PAT_ENABLE="3") is None
    assert conflict("NVLSTree;allgather:Ring;broadcast:Ring", **several, flags=NVLS) is None
    assert conflict(pat) is not None


@pytest.mark.parametrize("version", ["2.21.5", "2.18", "2.23.4"])
def test_before_2_24_tree_was_for_all_reduce_and_a_value_for_one_function_is_not_read(version: str) -> None:
    assert conflict("Tree", version=version) is None
    assert conflict("Tree", "LL,Simple", version=version) is None
    for value, instead in (
        ("allreduce:Tree", "Tree"),
        ("allReduce:Ring,Tree", "Ring,Tree"),
        ("^LL;allreduce:LL", None),
    ):
        found = conflict(value, version=version)
        assert found is not None
        assert f"NCCL reads a value for one function from 2.24 on, and {version} is there" in found.why
        assert (found.instead, found.certain) == (instead, False)
    protocol = conflict("", "allreduce:LL", version=version)
    assert protocol is not None
    assert protocol.instead is None
    typed = conflict("", "LL256", version=version)
    assert typed is not None
    assert typed.why.endswith(f"(LL, LL128, Simple): NCCL {version}, which is there, passes over it")


@pytest.mark.parametrize("version", [None, "", "unknown"])
def test_a_version_that_is_not_known_is_taken_to_be_a_newer_one_and_nothing_is_certain(version: str | None) -> None:
    found = conflict("Tree", version=version)
    assert found is not None
    assert found.why.endswith("while it starts; which NCCL is there could not be read")
    assert not found.certain
    assert conflict("allreduce:Tree", version=version) is None
    assert conflict("Tree", SGLANG_NCCL_SO_PATH="/x/libnccl.so") == found, "SGLang loads that one"


@pytest.mark.parametrize("version", ["2.24.3", "2.100", "3.0"])
def test_from_2_24_on_it_is_certain(version: str) -> None:
    found = conflict("Tree", version=version)
    assert found is not None
    assert found.certain


def test_for_all_reduce_alone_every_list_is_taken_that_all_reduce_itself_can_use() -> None:
    for size in (1, 2, 3):
        for names in combinations(("Tree", "Ring", "NVLS", "NVLSTree", "PAT"), size):
            listed = ",".join(names)
            fits = bool({"Tree", "Ring"} & set(names))
            assert (conflict(f"allreduce:{listed}") is None) == fits, listed
            whole = conflict(listed)
            assert (whole is None) == ("Ring" in names), listed
            if whole is not None:
                assert whole.instead == (f"allreduce:{listed}" if fits else None)
