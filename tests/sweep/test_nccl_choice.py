"""Which values of NCCL_ALGO and NCCL_PROTO end a server of several GPUs."""

from __future__ import annotations

from itertools import combinations

import pytest

from eaglelab.sweep.nccl_choice import Conflict, nccl_conflict


def conflict(
    algo: str = "", proto: str = "", world: int = 8, nodes: int = 1, version: str | None = "2.28.9", **more: str
) -> Conflict | None:
    env = {"NCCL_ALGO": algo, "NCCL_PROTO": proto, **more, "OTHER": "Tree"}
    return nccl_conflict(env, world=world, nodes=nodes, version=version)


def test_the_value_that_ended_a_real_server_is_refused_with_what_to_set_instead() -> None:
    found = conflict("Tree", world=2)
    assert found is not None
    assert found.why == (
        "NCCL_ALGO=Tree leaves NCCL nothing for AllGather (Ring can): "
        "from NCCL 2.24 on that ends the server as it captures its graphs"
    )
    assert found.instead == "NCCL_ALGO=allreduce:Tree"


@pytest.mark.parametrize(
    ("algo", "proto"),
    [
        ("", ""),
        ("Ring", ""),  # these five came up on two GPUs, with NCCL 2.28.9
        ("", "LL"),
        ("", "LL128"),
        ("", "Simple"),
        ("allreduce:Tree", ""),
        ("tree,RING", ""),
        ("^Tree", ""),
        ("Ring;allreduce:Tree", ""),
        ("ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring", ""),
        ("NVLS", ""),  # whether the hardware has it is not ours to say
        ("NVLS", "LL,Simple"),
        ("allreduce:NVLS", "allgather:LL"),
        ("", "^LL128;allreduce:LL128"),
        ("broadcast:Tree", ""),  # nothing that a server calls in any case
    ],
)
def test_what_nccl_takes_is_let_through(algo: str, proto: str) -> None:
    assert conflict(algo, proto) is None


@pytest.mark.parametrize(
    ("algo", "proto", "why", "instead"),
    [
        ("Tree", "LL", "NCCL_ALGO=Tree NCCL_PROTO=LL leaves NCCL nothing for AllGather (Ring can)", "allreduce:Tree"),
        ("^Ring,NVLS", "", "nothing for AllGather (Ring, NVLS can)", "allreduce:^Ring,NVLS"),
        ("Ring;allgather:Tree", "", "nothing for AllGather", None),
        ("PAT", "", "nothing for AllReduce (Tree, Ring, NVLS can)", None),
        ("NVLSTree", "", "nothing for AllReduce", None),
        ("CollNetDirect", "", "nothing for AllReduce", None),
        ("NVLS", "LL", "nothing for AllReduce (Tree, Ring can)", None),
        ("", "^LL,LL128,Simple", "NCCL_PROTO=^LL,LL128,Simple leaves NCCL nothing for AllReduce:", None),
        ("Rign", "", "NCCL_ALGO=Rign: NCCL knows no 'Rign' (Tree, Ring, CollNetDirect,", None),
        ("Ring, Tree", "", "NCCL knows no ' Tree'", None),
        ("", "LL256", "NCCL_PROTO=LL256: NCCL knows no 'LL256' (LL, LL128, Simple)", None),
        ("gather:Ring", "", "NCCL knows no function 'gather' (Broadcast,", None),
        ("Ring;Tree", "", "every part but the first has to name its function (Tree)", None),
    ],
)
def test_what_nccl_does_not_take_is_refused(algo: str, proto: str, why: str, instead: str | None) -> None:
    found = conflict(algo, proto)
    assert found is not None
    assert why in found.why
    assert found.instead == (instead and f"NCCL_ALGO={instead}")


def test_on_one_gpu_nothing_is_asked_of_nccl() -> None:
    assert conflict("Tree", world=1) is None
    assert conflict("Rign", world=1) is None


def test_what_the_machines_and_other_variables_switch_on_and_off_counts() -> None:
    assert conflict("NVLS", world=2) is not None, "NVLS is for more than two GPUs of a machine"
    assert conflict("NVLS", NCCL_NVLS_ENABLE="0") is not None
    assert conflict("NVLS", world=16, nodes=2) is not None
    assert conflict("NVLS", world=16, nodes=2, NCCL_COLLNET_ENABLE="1") is None
    assert conflict("CollNetDirect", NCCL_COLLNET_ENABLE="1") is None
    assert conflict("NVLSTree;allgather:Ring", world=16, nodes=2) is None
    assert conflict("Tree;allgather:PAT", world=2, nodes=2) is None, "one GPU a machine"
    assert conflict("Tree;allgather:PAT", world=4, nodes=2) is not None
    assert conflict("Tree;allgather:PAT", world=4, nodes=2, NCCL_PAT_ENABLE="1") is None


@pytest.mark.parametrize("version", ["2.21.5", "2.18", "2.23.4"])
def test_before_2_24_ring_stands_in_and_a_value_for_one_function_is_not_heeded(version: str) -> None:
    assert conflict("Tree", version=version) is None
    found = conflict("allreduce:Tree", version=version)
    assert found is not None
    assert f"NCCL {version} there takes no value for one function (2.24 does)" in found.why
    assert found.instead == "NCCL_ALGO=Tree"


@pytest.mark.parametrize("version", [None, "", "unknown", "2.24.3", "2.100", "3.0"])
def test_a_version_that_is_not_known_is_taken_to_be_a_newer_one(version: str | None) -> None:
    assert conflict("Tree", version=version) is not None
    assert conflict("allreduce:Tree", version=version) is None


def test_for_all_reduce_alone_every_list_is_taken_that_all_reduce_itself_can_use() -> None:
    for size in (1, 2, 3):
        for names in combinations(("Tree", "Ring", "NVLS", "NVLSTree", "PAT"), size):
            listed = ",".join(names)
            fits = bool({"Tree", "Ring", "NVLS"} & set(names))
            assert (conflict(f"allreduce:{listed}") is None) == fits, listed
            whole = conflict(listed)
            assert (whole is None) == bool({"Ring", "NVLS"} & set(names)), listed
            if whole is not None:
                assert whole.instead == (f"NCCL_ALGO=allreduce:{listed}" if fits else None)
