from __future__ import annotations

from eaglelab.sweep.matrix import Variation
from eaglelab.sweep.nodes import Nodes
from eaglelab.sweep.plan import Load

REFERENCE, OTHER = Load(None, Variation()), Load((2,), Variation())
H200, H100 = "NVIDIA H200, 143771 MiB, 570.1", "NVIDIA H100, 81559 MiB, 570.1"


def test_nodes_with_the_same_kind_of_gpu_are_equal_however_many_a_job_sees() -> None:
    nodes = Nodes(REFERENCE)
    assert nodes.see("n1", [H200]) is None
    assert nodes.see("n2", [H200, H200]) is None


def test_a_node_with_another_gpu_is_named_beside_the_first() -> None:
    nodes = Nodes(REFERENCE)
    nodes.see("n1", [H200])
    assert nodes.see("n2", [H100]) == f"n2 has {H100}, n1 has {H200}"
    assert nodes.see("n3", []) == f"n3 has no GPU that nvidia-smi names, n1 has {H200}"


def test_a_node_on_which_nothing_was_measured_measures_no_reference() -> None:
    nodes = Nodes(REFERENCE)
    nodes.see("n1", [H200])
    nodes.see("n2", [H200])
    assert nodes.measured(REFERENCE, "n1") == []


def test_one_node_alone_measures_the_reference_once() -> None:
    nodes = Nodes(REFERENCE)
    assert nodes.measured(REFERENCE, "n1") == []
    assert nodes.measured(OTHER, "n1") == []
    assert nodes.home == "n1"


def test_every_further_node_measures_it_once_and_is_bound_to_that_node() -> None:
    nodes = Nodes(REFERENCE)
    nodes.measured(REFERENCE, "n1")
    (more,) = nodes.measured(OTHER, "n2")
    assert (more.points, more.on, more.folder, more.name) == (
        REFERENCE.points,
        "n2",
        "baseline-on-n2",
        "baseline on n2",
    )
    assert nodes.measured(OTHER, "n2") == []


def test_nothing_is_asked_for_before_it_is_known_where_the_reference_itself_ran() -> None:
    nodes = Nodes(REFERENCE)
    assert nodes.measured(OTHER, "n2") == []
    assert nodes.measured(OTHER, "n3") == []
    assert [load.on for load in nodes.measured(REFERENCE, "n2")] == ["n3"]
    assert nodes.home == "n2"
