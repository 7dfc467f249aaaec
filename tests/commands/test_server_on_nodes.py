"""A server of several nodes on hosts in memory: what is refused beforehand, all or none, one node's failure for all."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from fake_host import WORKER, WORKER_PATH, FakeHost, refusal

from eaglelab.remote.pipe import LinkLost
from eaglelab.runs.reading import SET_ASIDE

SMALL = ("--num-prompts", "4", "--repeats", "4", "--output-len", "64", "--json")
SERVER = "server: {nnodes: 2, tp_size: 2}"


@pytest.fixture
def nodes(own: Path, fakes: dict[str, FakeHost]) -> dict[str, FakeHost]:
    """`both` is one server; `c` is a host of its own."""
    inventory(own, f"  both:\n    hosts: [a, b]\n    {SERVER}")
    fakes["c"] = FakeHost()
    return fakes


def inventory(own: Path, groups: str, hosts: str = "  a: {}\n  b: {}\n  c: {}\n") -> None:
    path = own / "inventory.yaml"
    head = path.read_text().split("groups:")[0]
    path.write_text(f"{head}groups:\n{groups}\nhosts:\n{hosts}")


def argument(fake: FakeHost, flag: str) -> str:
    assert fake.record is not None
    command = fake.record["command"]
    return str(command[command.index(flag) + 1])


def untouched(*fakes: FakeHost) -> bool:
    return all(fake.files[WORKER_PATH] == WORKER and not fake.alive for fake in fakes)


def test_the_hosts_of_the_group_are_the_ranks_in_their_order(invoke, own, nodes) -> None:
    inventory(own, f"  both:\n    hosts: [b, a]\n    {SERVER}")
    done = invoke("deploy-profiling", "--host", "both", "--json")
    assert done.code == 0, done.err
    assert done.json["server"] == {"name": "both", "nodes": ["b", "a"]}
    assert [argument(nodes[name], "--node-rank") for name in "ba"] == ["0", "1"]
    for name in "ab":
        assert argument(nodes[name], "--nnodes") == "2"
        assert argument(nodes[name], "--dist-init-addr") == "127.0.0.1:20000"
    assert nodes["a"].record["env"] == nodes["b"].record["env"]
    assert "generate" in nodes["b"].ops()
    assert "generate" not in nodes["a"].ops()
    assert {name: "profile" in done.json["hosts"][name] for name in "ab"} == {"b": True, "a": False}


def test_another_way_to_rank_0_may_be_said(invoke, own, nodes) -> None:
    server = "server: {nnodes: 2, tp_size: 2, dist_init_host: 'fe80::1', dist_init_port: 5000}"
    inventory(own, f"  both:\n    hosts: [a, b]\n    {server}")
    assert invoke("deploy-profiling", "--host", "both").code == 0
    assert argument(nodes["b"], "--dist-init-addr") == "[fe80::1]:5000"


def test_hosts_that_say_it_themselves_are_one_server_too_in_the_order_of_their_group(invoke, own, nodes) -> None:
    one = f"{{{SERVER}}}"
    inventory(own, "  pair: [b, a]\n  every: [a, b, c]", f"  a: {one}\n  b: {one}\n  c: {{}}\n")
    done = invoke("deploy-profiling", "--host", "a,b", "--json")
    assert done.code == 0, done.err
    assert done.json["server"] == {"name": "pair", "nodes": ["b", "a"]}


@pytest.mark.parametrize("command", ["deploy-profiling", "bench", "sweep", "play deploy-profiling"])
@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        ("--host b", "host 'b' is node 1 of the server both, with a", "--host both"),
        ("--host a,b,c", "host 'a' is node 0 of the server both, with b", "nothing beside it"),
        ("--host both --serial 1", "cannot be started in batches", "leave it out"),
        ("--host both --forks 1", "wait for each other", "2 or more"),
        ("--host both --on-failure continue", "where one fails, all are ended", "leave it out"),
    ],
)
def test_what_cannot_be_is_refused_before_a_host_is_asked(
    invoke, own, nodes, command: str, words: str, what: str, hint: str
) -> None:
    done = invoke(*command.split(), *words.split())
    assert done.code == 2, done.err
    assert what in done.err
    assert hint in done.err
    assert all(fake.calls == [] for fake in nodes.values())


def test_a_sweep_is_not_spread_over_the_nodes_of_one_server(invoke, own, nodes) -> None:
    done = invoke("sweep", "--host", "both", "--spread", "--steps", "2,3")
    assert (done.code, nodes["a"].calls) == (2, [])
    assert "one server is nothing to spread over" in done.err


def test_a_batch_size_in_a_playbook_is_refused_too(invoke, own, nodes) -> None:
    path = own / "playbooks" / "deploy-profiling.yaml"
    path.write_text(path.read_text().replace("name: deploy-profiling", "name: deploy-profiling\nserial: 1", 1))
    done = invoke("deploy-profiling", "--host", "both")
    assert (done.code, nodes["a"].calls) == (2, [])


@pytest.mark.parametrize(
    ("groups", "hosts", "what"),
    [
        ("  both:\n    hosts: [a, b, c]\n    server: {nnodes: 2, tp_size: 2}", None, "group 'both' has 3 hosts"),
        ("  both:\n    hosts: [a, b]\n    server: {nnodes: 2, tp_size: 3}", None, "cannot be shared out evenly"),
        (
            "  both:\n    hosts: [a, b]\n    server: {nnodes: 2, tp_size: 2, flags: {nnodes: 2}}",
            None,
            "flag nnodes is set by server.nnodes",
        ),
        (
            "  both:\n    hosts: [a, b]\n    server: {nnodes: 2, tp_size: 2, flags: {dist-init-addr: 'a:1'}}",
            None,
            "flag dist-init-addr is given here",
        ),
        ("  both:\n    hosts: [a, b]\n    server: {nnodes: 2, tp_size: 2, launcher: slurm}", None, "through Slurm"),
        ("  x: [a, b]", f"  a: {{{SERVER}}}\n  b: {{}}\n  c: {{}}\n", "in no group of 2 such hosts"),
        (
            "  x: [a, b]\n  y: [b, a]",
            f"  a: {{{SERVER}}}\n  b: {{{SERVER}}}\n  c: {{}}\n",
            "could each be the server",
        ),
    ],
)
def test_an_inventory_that_does_not_add_up_is_refused(
    invoke, own, nodes, groups: str, hosts: str | None, what: str
) -> None:
    inventory(own, groups, *([hosts] if hosts else []))
    done = invoke("deploy-profiling", "--host", "a,b")
    assert done.code == 2
    assert what in done.err
    assert all(fake.calls == [] for fake in nodes.values())


def test_one_host_may_still_be_told_where_its_own_ranks_meet(invoke, own, fakes) -> None:
    inventory(own, "  both: [a, b]", "  a: {server: {flags: {dist-init-addr: 127.0.0.1:5000}}}\n  b: {}\n")
    assert invoke("deploy-profiling", "--host", "a").code == 0
    assert argument(fakes["a"], "--dist-init-addr") == "127.0.0.1:5000"


@pytest.mark.parametrize("command", ["status", "doctor", "logs", "stop", "rollback"])
def test_commands_that_start_nothing_take_the_group_and_each_of_its_hosts(invoke, own, nodes, command: str) -> None:
    assert invoke(command, "--host", "both").code == 0
    assert invoke(command, "--host", "b").code == 0


def test_unequal_hosts_are_told_apart_before_anything_is_changed(invoke, own, nodes) -> None:
    nodes["b"].facts["gpus"] = [{"index": "0", "name": "another GPU"}]
    done = invoke("deploy-profiling", "--host", "both", "--json")
    assert done.code == 1
    assert "simulated GPU, ?, ? on a, 1 x another GPU, ?, ? on b" in done.err
    assert untouched(nodes["a"], nodes["b"])
    assert not {"backup", "apply", "start"} & {*nodes["a"].ops(), *nodes["b"].ops()}
    looked = invoke("doctor", "--host", "both")
    assert (looked.code, "not equal" in looked.err) == (1, True)


@pytest.mark.parametrize("op", ["facts", "sed", "backup", "apply"])
def test_where_one_node_refuses_none_is_left_patched(invoke, own, nodes, op: str) -> None:
    nodes["b"].fail[op] = refusal("disk-full", "no room on b")
    done = invoke("deploy-profiling", "--host", "both", "--json")
    assert done.code == 1, done.err
    assert untouched(nodes["a"], nodes["b"])
    assert "start" not in nodes["a"].ops()
    assert done.json["error"]["what"] == "no room on b"
    assert done.json["hosts"]["a"]["error"]["what"] == "ended, because b failed"
    assert done.json["hosts"]["a"]["exit_code"] == 1
    if op != "apply":
        assert "apply" not in nodes["a"].ops()


def test_a_host_that_cannot_be_reached_ends_the_others_before_anything_is_changed(
    invoke, own, nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes["b"].fail["facts"] = LinkLost("no route to b", where="b")
    done = invoke("deploy-profiling", "--host", "both", "--json")
    assert done.code == 1
    assert untouched(nodes["a"])
    assert done.json["error"]["what"] == "no route to b"


def test_ranks_are_started_in_their_order(invoke, own, nodes) -> None:
    order: list[str] = []
    for name in "ba":
        before = nodes[name].op_start

        def noted(*args: Any, name: str = name, before: Any = before, **more: Any) -> Any:
            order.append(name)
            return before(*args, **more)

        nodes[name].op_start = noted  # type: ignore[method-assign]
    assert invoke("deploy-profiling", "--host", "both").code == 0
    assert order == ["a", "b"]


def test_where_one_node_needs_a_load_all_are_loaded_again(invoke, own, nodes) -> None:
    invoke("deploy-profiling", "--host", "both")
    nodes["b"].alive = False
    done = invoke("deploy-profiling", "--host", "both", "--json")
    assert done.code == 0, done.err
    assert "a load is needed all the same: b: no server of ours is running" in done.err
    assert [nodes[name].ops().count("start") for name in "ab"] == [2, 2]


def test_a_node_that_died_first_tells_why_and_the_others_follow_it(invoke, own, nodes) -> None:
    died = threading.Event()

    def dies(*args: Any, **more: Any) -> Any:
        died.wait(10)
        nodes["a"].files["/home/u/server.log"] += (
            b"RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.2]:1\n"
        )
        nodes["a"].alive, nodes["a"].exit = False, {"code": None, "signal": 9, "time": 5.0}
        raise refusal("request-failed", "the server closed the stream")

    status = nodes["b"].op_status

    def goes(*args: Any) -> Any:
        if nodes["a"].ops()[-1:] == ["generate"] and not died.is_set():
            nodes["b"].files["/home/u/server.log"] += b"torch.OutOfMemoryError: CUDA out of memory. on b\n"
            nodes["b"].alive, nodes["b"].exit = False, {"code": 1, "signal": None, "time": 7.0}
            died.set()
        return status(*args)

    nodes["a"].op_generate, nodes["b"].op_status = dies, goes  # type: ignore[method-assign]
    done = invoke("deploy-profiling", "--host", "both", "--json")
    assert done.code == 1, done.err
    assert done.json["error"]["where"] == "b"
    assert "node 1 died: the server ended by itself with exit code 1" in done.json["error"]["what"]
    assert "CUDA out of memory. on b" in done.json["error"]["what"]
    assert "ended, because the server died with node 1, b" in done.json["hosts"]["a"]["error"]["what"]
    assert untouched(nodes["a"], nodes["b"])


def test_what_had_ended_well_is_put_back_too_where_another_node_fails_in_the_last_task(invoke, own, nodes) -> None:
    path = own / "playbooks" / "deploy-profiling.yaml"
    text = path.read_text()
    begin, end = text.index("      - name: Report"), text.index("    rescue:")
    path.write_text(text[:begin] + text[end:])
    nodes["b"].fail["digest"] = refusal("no-such-file", "the log of b is gone")
    done = invoke("deploy-profiling", "--host", "both", "--json")
    assert done.code == 1, done.err
    assert done.json["error"]["what"] == "the log of b is gone"
    assert untouched(nodes["a"], nodes["b"])


def test_figures_are_those_of_rank_0_and_of_a_load_that_fails_the_next_one_is_made(invoke, own, nodes) -> None:
    a, b, seen = nodes["a"], nodes["b"], threading.Event()
    b.dies_with = {"6"}  # draft tokens: those of 5 steps
    status, poll = b.op_status, a.op_load_poll

    def looks() -> Any:
        if b.exit is not None and not b.alive:
            b.exit["time"] = 5.0
            seen.set()
        return status()

    def serves(id: str, run: str, offset: int) -> Any:  # noqa: A002
        if id.startswith("k5"):  # without rank 1 it answers nobody, until it ends as well
            seen.wait(10)
            a.alive, a.exit = False, {"code": None, "signal": 9, "time": 7.0}
            raise refusal("request-failed", "the server closed the stream")
        return poll(id, run, offset)

    b.op_status, a.op_load_poll = looks, serves  # type: ignore[method-assign]
    done = invoke("sweep", "--host", "both", "--steps", "2,5,3", "--separate-loads", "--no-baseline", *SMALL)
    assert done.code == 1, done.err
    assert {each["steps"] for each in done.json["hosts"]["a"]["measurements"]} == {2, 3}
    assert "node 1, b" in done.json["hosts"]["a"]["failed"][0]["what"]
    assert done.json["error"]["what"].startswith("1 of 3 settings failed: 5 steps")
    assert done.json["hosts"]["b"]["ok"] is True
    assert nodes["b"].begun == []
    assert [fake.ops().count("start") for fake in (nodes["a"], nodes["b"])] == [3, 3]
    assert untouched(nodes["a"], nodes["b"])


def test_a_sweep_ends_on_all_where_a_node_is_somebody_elses_by_now(invoke, own, nodes) -> None:
    from eaglelab.errors import LockLost

    start = nodes["b"].op_start

    def taken(*args: Any, **more: Any) -> Any:
        if nodes["b"].ops().count("start") > 1:
            raise LockLost("the lock of b was taken over", where="b")
        return start(*args, **more)

    nodes["b"].op_start = taken  # type: ignore[method-assign]
    done = invoke("sweep", "--host", "both", "--steps", "2,3,5", "--separate-loads", "--no-baseline", *SMALL)
    assert done.code == 1, done.err
    assert nodes["a"].ops().count("start") == 2
    assert {each["steps"] for each in done.json["hosts"]["a"]["measurements"]} == {2}
    assert untouched(nodes["a"])


def test_a_check_changes_nothing_and_previews_rank_0s_work_once(invoke, own, nodes) -> None:
    before = [nodes[name].snapshot() for name in "ab"]
    done = invoke("deploy-profiling", "--host", "both", "--check", "--json")
    assert done.code == 0, done.err
    assert [nodes[name].snapshot() for name in "ab"] == before
    assert done.err.count("would ask for 1000 tokens") == 1
    assert "--node-rank 1" in done.err


def test_a_load_that_holds_on_one_node_only_is_measured_again_and_no_figure_comes_twice(invoke, own, nodes) -> None:
    nodes["b"].dies_with = {"6"}
    first = invoke("sweep", "--host", "both", "--steps", "2,3,5", "--separate-loads", "--no-baseline", *SMALL)
    assert first.code == 1, first.err
    nodes["b"].dies_with = set()
    (Path(first.json["bundle"]) / "b" / "k2" / "done.json").unlink()
    done = invoke("sweep", "--resume", "last", "--json")
    assert done.code == 0, done.err
    assert [fake.ops().count("start") for fake in (nodes["a"], nodes["b"])] == [5, 5]  # k2 and k5 once more
    found = [(each["steps"], each["profiled"]) for each in done.json["hosts"]["a"]["measurements"]]
    assert sorted(found) == [(steps, profiled) for steps in (2, 3, 5) for profiled in (False, True)]
    assert [load.id for load in nodes["a"].begun].count("k3-c1") == 1
    assert (Path(done.json["bundle"]) / "a" / SET_ASIDE / "k2-1" / "measurements-c1.json").exists()
