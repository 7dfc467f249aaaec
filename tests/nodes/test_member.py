"""One node among others: ended in the middle of its work when another fails, and undisturbed while it puts itself back."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "actions"))
from fake_host import FakeHost, refusal
from test_watch import Quiet

from eaglelab.actions.base import Action, NoArguments
from eaglelab.bundle import Bundle
from eaglelab.context import Context, Options
from eaglelab.errors import AttentionError, HostError, Interrupted, LockLost
from eaglelab.host import Host
from eaglelab.interruption import Interruption
from eaglelab.nodes.lockstep import Lockstep
from eaglelab.nodes.member import Member, NodeGone
from eaglelab.server.readiness import ServerDied

EACH = Action("patch", NoArguments, "x", lambda *_: {})
FIRST = Action("measure", NoArguments, "x", lambda *_: {}, nodes="first")


@pytest.fixture
def pair(tmp_path: Path) -> dict[str, Context]:
    step, found = Lockstep(("a", "b")), {}
    for name in "ab":
        stop = Interruption()
        context = Context(
            Host.build(name, {"address": "127.0.0.1"}, {}, ""),
            FakeHost(),  # type: ignore[arg-type]
            Bundle(tmp_path, "run", name),
            Quiet(),  # type: ignore[arg-type]
            Options(),
            sleep=stop.sleep,
        )
        context.node = Member(name, step, lambda _: {}, lambda _: [], stop)
        found[name] = context
    return found


def member(context: Context) -> Member:
    assert context.node is not None
    return context.node


def perform(context: Context, action: Action, do: Callable[[], Any], at: str = "task") -> Any:
    return member(context).perform(context, at, action, do, lambda: None)


def beside(work: Callable[[], Any]) -> Callable[[], Any]:
    """What work in another thread came to, once it is asked for."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # noqa: BLE001 - it is the result
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result() -> Any:
        thread.join(10)
        assert found, "it waits for ever"
        return found[0]

    return result


def hangs(context: Context) -> Callable[[], Any]:
    """Work that takes a minute, unless it is ended."""
    return lambda: context.sleep(60)


def raises(error: BaseException) -> Any:
    def do() -> None:
        raise error

    return do


def test_rank_0s_result_is_everybodys(pair: dict[str, Context]) -> None:
    other = beside(lambda: perform(pair["b"], FIRST, raises(AssertionError("not its work"))))
    assert perform(pair["a"], FIRST, lambda: {"tok_s": 94}) == {"tok_s": 94} == other()


def test_a_failure_ends_what_another_node_is_in_the_middle_of(pair: dict[str, Context]) -> None:
    begun = threading.Event()

    def hangs() -> dict[str, Any]:
        begun.set()
        pair["a"].sleep(60)
        return {}

    def fails() -> None:
        begun.wait(10)
        raise refusal("disk-full", "no room")

    began = time.monotonic()
    other = beside(lambda: perform(pair["a"], EACH, hangs))
    with pytest.raises(HostError, match="no room"):
        perform(pair["b"], EACH, fails)
    ended = other()
    assert time.monotonic() - began < 10
    assert type(ended) is HostError
    assert ended.what == "ended, because b failed"


def test_a_node_that_is_robbed_while_it_waits_for_the_others_ends_soon_and_so_do_they(pair: dict[str, Context]) -> None:
    now = itertools.count()
    pair["b"].clock = lambda: float(next(now))
    other = beside(lambda: perform(pair["a"], EACH, hangs(pair["a"])))
    perform(pair["b"], EACH, dict)
    pair["b"].client.fail["look"] = LockLost("the lock of b was taken over", where="b")  # type: ignore[attr-defined]
    with pytest.raises(LockLost, match="the lock of b was taken over"):
        perform(pair["b"], EACH, dict, "the next task")
    assert next(now) < 60
    ended = other()
    assert type(ended) is NodeGone
    assert ended.what == "ended, because b failed"


def test_what_puts_a_node_back_is_neither_disturbed_nor_kept_waiting(pair: dict[str, Context]) -> None:
    other = beside(lambda: perform(pair["b"], EACH, raises(HostError("no room"))))
    with pytest.raises(HostError):
        perform(pair["a"], EACH, hangs(pair["a"]))
    other()
    pair["a"].sleep(0.3)
    assert perform(pair["a"], EACH, lambda: {"restored": True}, "roll back") == {"restored": True}


def test_a_server_that_died_lets_all_try_the_next_load(pair: dict[str, Context]) -> None:
    other = beside(lambda: perform(pair["b"], EACH, raises(ServerDied("out of memory"))))
    with pytest.raises(ServerDied, match="ended, because b failed"):
        perform(pair["a"], EACH, hangs(pair["a"]))
    other()
    again = beside(lambda: member(pair["b"]).again(pair["b"]))
    member(pair["a"]).again(pair["a"])
    again()
    other = beside(lambda: perform(pair["b"], EACH, lambda: {"b": 1}))
    assert perform(pair["a"], EACH, lambda: {"a": 1}) == {"a": 1}
    assert other() == {"b": 1}


def test_a_node_that_a_person_must_mend_is_gone_for_all(pair: dict[str, Context]) -> None:
    other = beside(lambda: perform(pair["b"], EACH, raises(AttentionError("half way", hint="invoke rollback"))))
    with pytest.raises(NodeGone) as gone:
        perform(pair["a"], EACH, hangs(pair["a"]))
    assert isinstance(other(), AttentionError)
    assert gone.value.hint == "invoke rollback"
    with pytest.raises(NodeGone):
        member(pair["a"]).again(pair["a"])


def test_a_ctrl_c_on_one_is_a_ctrl_c_on_all_and_only_one(pair: dict[str, Context]) -> None:
    stop = member(pair["a"]).interruption
    assert stop is not None
    other = beside(lambda: perform(pair["b"], EACH, raises(KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt):
        perform(pair["a"], EACH, hangs(pair["a"]))
    assert isinstance(other(), KeyboardInterrupt)
    assert isinstance(member(pair["a"]).lockstep.failure.error, Interrupted)  # type: ignore[union-attr]
    stop.check()
