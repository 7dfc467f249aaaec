"""A node that waits for rank 0 looks after its own process; a link that is lost is no death, unless it stays lost."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "actions"))
from fake_host import LOG, Clock, FakeHost

from eaglelab.context import Context, LogMark
from eaglelab.errors import HostError
from eaglelab.nodes.watch import Watch, how_it_ended
from eaglelab.remote.pipe import LinkLost
from eaglelab.server.readiness import ServerDied


class Quiet:
    """Takes what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def progress(self, text: str, *_: Any) -> None:
        self.said.append(text)


@pytest.fixture
def running(tmp_path: Path) -> tuple[Context, FakeHost]:
    from eaglelab.bundle import Bundle
    from eaglelab.context import Options
    from eaglelab.host import Host

    fake, clock = FakeHost(), Clock()
    server = {"nnodes": 2, "tp_size": 2, "node_lost_after": 60}
    host = Host.build("b", {"address": "127.0.0.1", "log": LOG, "server": server}, {}, "")
    context = Context(host, fake, Bundle(tmp_path, "run", "b"), Quiet(), Options(), clock=clock, sleep=clock.sleep)  # type: ignore[arg-type]
    record = fake.op_start("run", ["x"], {}, LOG, 1, "/", {})
    context.found.record, context.found.log = record, LogMark(LOG, record["log_offset"])
    return context, fake


def look(watch: Watch, context: Context) -> None:
    context.clock.sleep(1)  # type: ignore[attr-defined]
    watch()


def test_a_process_that_lives_is_looked_at_twice_a_second_at_most(running: tuple[Context, FakeHost]) -> None:
    context, fake = running
    watch = Watch(context, "a: Measure")
    look(watch, context)
    watch()
    assert fake.ops().count("status") == 1
    assert context.say.said[-1] == "a: Measure; its own process lives"  # type: ignore[attr-defined]


def test_a_process_that_has_ended_is_said_with_its_last_lines(running: tuple[Context, FakeHost]) -> None:
    context, fake = running
    watch = Watch(context, "a: Measure")
    look(watch, context)
    fake.files[LOG] += b"Bus error on b\n"
    fake.alive, fake.exit = False, {"code": None, "signal": 7}
    with pytest.raises(ServerDied, match="killed by signal 7") as died:
        look(watch, context)
    assert "Bus error on b" in died.value.what


def test_a_launcher_that_outlives_its_scheduler_is_dead_after_a_moment(running: tuple[Context, FakeHost]) -> None:
    context, fake = running
    watch = Watch(context, "a: Measure")
    fake.files[LOG] += b"Scheduler hit an exception: Traceback\nValueError: x\n"
    look(watch, context)
    context.clock.sleep(20)  # type: ignore[attr-defined]
    with pytest.raises(ServerDied, match="its first process still lives"):
        look(watch, context)


def test_a_lost_link_is_waited_for_and_then_all_goes_on(running: tuple[Context, FakeHost]) -> None:
    context, fake = running
    watch = Watch(context, "a: Measure")
    fake.fail["status"] = LinkLost("gone", where="b")
    sleep = context.sleep

    def back(seconds: float) -> None:
        sleep(seconds)
        if context.clock() > 1030:
            fake.fail.clear()

    context.sleep = back
    look(watch, context)
    assert context.clock() > 1030
    assert "unreachable: gone" in context.say.said[-2]  # type: ignore[attr-defined]
    assert context.say.said[-1].endswith("its own process lives")  # type: ignore[attr-defined]


def test_a_link_that_stays_lost_is_a_dead_server(running: tuple[Context, FakeHost]) -> None:
    context, fake = running
    fake.fail["status"] = LinkLost("gone", where="b")
    with pytest.raises(HostError, match="unreachable for more than 60 s: gone"):
        look(Watch(context, "a: Measure"), context)
    assert 1060 < context.clock() < 1065


def test_what_is_found_out_of_an_end_names_its_time_and_whether_it_follows_another(
    running: tuple[Context, FakeHost],
) -> None:
    context, fake = running
    assert how_it_ended(context, context.sleep) is None
    fake.files[LOG] += b"RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.1]:2\n"
    fake.alive, fake.exit = False, {"code": None, "signal": 9, "time": 12.0}
    found = how_it_ended(context, context.sleep)
    assert found is not None
    assert (found.at, found.follows) == (12.0, True)


def test_nothing_is_found_out_where_the_host_cannot_be_asked(running: tuple[Context, FakeHost]) -> None:
    context, fake = running
    fake.fail["tail"] = LinkLost("gone", where="b")
    assert how_it_ended(context, context.sleep) is None
