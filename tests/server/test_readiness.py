"""Waiting for a server: every state and every end told apart, on a clock that only waiting moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eaglelab.errors import HostError
from eaglelab.remote.pipe import LinkLost
from eaglelab.server.readiness import (
    Budgets,
    Look,
    ServerDied,
    State,
    Waiting,
    poll_interval,
    wait_until_ready,
)

REFUSED = {"error": "refused"}
STARTING = {"status": 503}
HEALTHY = {"status": 200}


def seen(health: dict[str, Any] = REFUSED, log: bytes = b"", **changes: Any) -> Callable[[], tuple[Any, bytes]]:
    answer = {"alive": True, "record": {"run": "r"}, "exit": None, "health": health, **changes}
    return lambda: (answer, log)


def lost(what: str = "cannot be reached: timed out") -> Callable[[], tuple[Any, bytes]]:
    def raise_lost() -> tuple[Any, bytes]:
        raise LinkLost(what, where="h")

    return raise_lost


class Script:
    """A host whose looks are written down; the last one stays. `now` is the time, `took` what a look takes."""

    def __init__(self, *looks: Callable[[], tuple[Any, bytes]], tokens: tuple[str | None, ...] = (None,)) -> None:
        self.looks = list(looks)
        self.tokens = list(tokens)
        self.now = 0.0
        self.took = 0.0
        self.offsets: list[int] = []
        self.asked = 0

    def poll(self, offset: int) -> tuple[Any, bytes]:
        self.offsets.append(offset)
        self.now += self.took
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        answer, log = look()
        return {"offset": offset, **answer}, log

    def one_token(self) -> str | None:
        self.asked += 1
        return self.tokens.pop(0) if len(self.tokens) > 1 else self.tokens[0]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def waiting(self, *, expected: float = 900.0, **budgets: float) -> Waiting:
        return Waiting(
            probe=self,
            where="h",
            budgets=Budgets(**{"total": 1800.0, **budgets}),
            expected=expected,
            clock=lambda: self.now,
        )

    def wait(self, **kinds: float) -> list[Look]:
        looks: list[Look] = []
        wait_until_ready(self.waiting(**kinds), sleep=self.sleep, say=looks.append)
        return looks


def test_a_server_is_ready_once_health_is_good_and_a_token_came_back() -> None:
    script = Script(seen(), seen(STARTING), seen(HEALTHY))
    assert [look.state for look in script.wait()] == [State.LOADING, State.WARMING, State.READY]
    assert script.asked == 1


def test_a_loading_server_is_shown_with_phase_shards_and_the_time_that_is_left() -> None:
    log = b"Load weight begin.\nLoading safetensors checkpoint shards:  25% Completed | 16/64 [00:31<01:33]\n"
    first, second, _ = Script(seen(log=log), seen(), seen(HEALTHY)).wait(expected=900)
    assert first == Look(State.LOADING, "loading weights: 16 of 64 shards", 0.0, 900.0)
    assert (second.elapsed, second.eta) == (2.0, 898.0)


def test_a_load_that_takes_longer_than_expected_has_nothing_left_and_goes_on() -> None:
    looks = Script(*[seen()] * 3, seen(HEALTHY)).wait(expected=3)
    assert [look.eta for look in looks[:3]] == pytest.approx([3.0, 2.9, 2.8])
    script = Script(*[seen()] * 100, seen(HEALTHY))
    assert script.wait(expected=3)[99].eta == 0


def test_the_log_is_read_on_from_where_the_last_look_ended() -> None:
    script = Script(seen(log=b"12345"), seen(log=b"678"), seen(HEALTHY))
    script.wait()
    assert script.offsets == [0, 5, 8]


@pytest.mark.parametrize(
    ("health", "words"),
    [(STARTING, "health says 503"), ({"error": "timeout"}, "health does not answer")],
)
def test_a_server_that_answers_but_is_not_healthy_is_warming(health: dict[str, Any], words: str) -> None:
    look = Script(seen(health), seen(HEALTHY)).wait()[0]
    assert look.state is State.WARMING
    assert words in look.doing


def test_a_closed_port_after_the_log_said_it_serves_is_warming_and_not_loading() -> None:
    look = Script(seen(log=b"INFO:     Uvicorn running on http://127.0.0.1:30000\n"), seen(HEALTHY)).wait()[0]
    assert look == Look(State.WARMING, "its port is closed", 0.0, None)


def test_health_without_a_token_is_not_ready() -> None:
    script = Script(seen(HEALTHY), tokens=("/generate says 500", None))
    first, second = script.wait()
    assert (first.state, first.doing) == (State.WARMING, "answers 200, but no token: /generate says 500")
    assert second.state is State.READY


def test_a_server_that_loads_but_never_gives_a_token_ends_after_its_own_budget() -> None:
    script = Script(seen(HEALTHY, b"a line of its log\n"), tokens=("/generate says timeout",))
    with pytest.raises(HostError, match="warming up for more than 300 s: answers 200, but no token") as caught:
        script.wait()
    assert 300 < script.now <= 302
    assert "a line of its log" in caught.value.what
    assert "it does not serve" in caught.value.hint


def test_a_load_that_never_ends_is_given_up_within_one_look_after_ready_timeout() -> None:
    script = Script(seen(log=b"Load weight begin.\n"))
    with pytest.raises(HostError, match="no token within 1800 s; still loading: loading weights") as caught:
        script.wait()
    assert 1800 < script.now <= 1802
    assert "ready_timeout" in caught.value.hint


def test_ready_timeout_bounds_all_states_together() -> None:
    script = Script(*[seen()] * 800, *[lost()] * 50, *[seen(STARTING)] * 500)
    with pytest.raises(HostError, match="no token within 1800 s; still warming up"):
        script.wait()
    assert 1800 < script.now <= 1802


def test_a_look_that_takes_long_counts_for_what_it_found() -> None:
    script = Script(lost())
    script.took = 50.0
    with pytest.raises(HostError, match="unreachable for more than 100 s"):
        script.wait(unreachable=100.0)
    assert script.now <= 156.0


def test_no_server_on_record_is_said_soon() -> None:
    script = Script(seen(alive=False, record=None))
    with pytest.raises(HostError, match="not started for more than 10 s: no server of ours") as caught:
        script.wait()
    assert "`start` before `wait`" in caught.value.hint
    assert script.now <= 12


def test_a_server_that_ended_by_itself_is_dead_at_once_with_code_cause_and_last_lines() -> None:
    gone = seen(alive=False, exit={"code": 2, "signal": None})
    script = Script(seen(), seen(log=b"usage: launch_server.py\nlaunch_server.py: error: bad --flag\n"), gone)
    with pytest.raises(ServerDied) as caught:
        script.wait()
    error = caught.value
    assert error.what.startswith("the server ended by itself with exit code 2: SGLang does not take this command line")
    assert "\n    usage: launch_server.py\n" in error.what
    assert "`server.flags`" in error.hint
    assert script.now == 4.0


def test_what_a_dying_server_wrote_last_is_read_before_it_is_given_up() -> None:
    exit_ = {"code": 1, "signal": None}
    script = Script(seen(), seen(alive=False, exit=exit_), seen(alive=False, exit=exit_, log=b"ValueError: why"))
    with pytest.raises(ServerDied, match=r"exit code 1: it failed \(ValueError: why\)"):
        script.wait()


def test_signal_9_is_explained() -> None:
    script = Script(seen(alive=False, exit={"code": None, "signal": 9}))
    with pytest.raises(ServerDied, match="killed by signal 9; the kernel does this when memory runs out"):
        script.wait()


def test_another_signal_is_named_without_a_guess() -> None:
    script = Script(seen(alive=False, exit={"code": None, "signal": 11}))
    with pytest.raises(ServerDied) as caught:
        script.wait()
    assert caught.value.what == "the server was killed by signal 11"


def test_how_a_server_ended_may_be_written_down_a_moment_after_its_end() -> None:
    gone = seen(alive=False)
    script = Script(gone, gone, seen(alive=False, exit={"code": 3, "signal": None}))
    with pytest.raises(ServerDied, match="exit code 3"):
        script.wait()


def test_a_server_that_is_gone_without_a_record_of_its_end_is_dead_after_a_moment() -> None:
    script = Script(seen(), seen(alive=False))
    with pytest.raises(ServerDied, match="the server is gone, and nothing there says how") as caught:
        script.wait()
    assert 3 < script.now - 2 <= 5
    assert "invoke logs --host h" in caught.value.hint


def test_a_kill_is_blamed_on_the_kernel_only_where_the_log_says_nothing_else() -> None:
    log = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB" + b" and more" * 100 + b"\n"
    script = Script(seen(alive=False, exit={"code": None, "signal": 9}, log=log))
    with pytest.raises(ServerDied) as caught:
        script.wait()
    first = caught.value.what.splitlines()[0]
    assert "kernel" not in first
    assert "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB and more" in first
    assert first.endswith(" ...)")


def test_a_launcher_that_outlives_its_scheduler_is_dead_after_a_moment() -> None:
    log = b"[x TP0] Scheduler hit an exception: Traceback\nValueError: why\n"
    script = Script(seen(), seen(log=log), seen())
    with pytest.raises(ServerDied, match=r"first process still lives.*ValueError: why"):
        script.wait()
    assert 15 < script.now - 2 <= 17


def test_a_dying_server_that_still_answers_health_is_dead_too() -> None:
    log = b"[x TP0] Scheduler hit an exception: Traceback\nValueError: why\n"
    script = Script(seen(HEALTHY, log), seen(HEALTHY), tokens=("/generate says timeout",))
    with pytest.raises(ServerDied, match="first process still lives"):
        script.wait()


def test_an_error_that_the_server_lives_with_does_not_end_the_wait() -> None:
    log = b"ImportError: no optional kernels\nWARNING: CUDA out of memory in the autotuner, next config\n"
    script = Script(seen(log=log), *[seen()] * 30, seen(HEALTHY))
    assert script.wait()[-1].state is State.READY


def test_a_link_that_comes_back_changes_nothing() -> None:
    script = Script(seen(), lost(), lost(), seen(STARTING), seen(HEALTHY))
    looks = script.wait()
    assert [look.state for look in looks[1:3]] == [State.UNREACHABLE] * 2
    assert looks[1].doing == "cannot be reached: timed out"
    assert looks[-1].state is State.READY


def test_a_host_that_stays_away_is_unknown_and_not_called_dead() -> None:
    script = Script(seen(log=b"Load weight begin.\n"), lost())
    with pytest.raises(HostError, match="unreachable for more than 600 s: cannot be reached") as caught:
        script.wait()
    assert not isinstance(caught.value, ServerDied)
    assert "may be well" in caught.value.hint
    assert 600 < script.now <= 604


def test_a_link_that_breaks_while_the_token_is_asked_for_is_looked_at_again() -> None:
    script = Script(seen(HEALTHY))

    def broken() -> str | None:
        script.asked += 1
        if script.asked == 1:
            raise LinkLost("the connection broke", where="h")
        return None

    script.one_token = broken  # type: ignore[method-assign]
    assert [look.state for look in script.wait()] == [State.UNREACHABLE, State.READY]


@pytest.mark.parametrize(("expected", "interval"), [(900, 2.0), (60, 2.0), (30, 1.0), (3, 0.1), (0.5, 0.1)])
def test_a_short_load_is_looked_at_more_often_and_a_long_one_every_two_seconds(
    expected: float, interval: float
) -> None:
    assert poll_interval(expected) == pytest.approx(interval)


def test_a_wait_that_is_interrupted_ends_with_the_interrupt() -> None:
    def interrupted() -> tuple[Any, bytes]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Script(interrupted).wait()


def test_time_in_a_queue_counts_for_its_own_budget_and_not_as_load() -> None:
    waiting = seen(queued="pending (Resources)")
    script = Script(*[waiting] * 1001, seen(), seen(HEALTHY))
    looks = script.wait(total=60.0, expected=900.0, queued=3000.0)
    queued, loading, ready = looks[1000], looks[1001], looks[-1]
    assert queued == Look(State.QUEUED, "pending (Resources)", 0.0, None, 2000.0)
    assert (loading.state, loading.elapsed, loading.queued) == (State.LOADING, 2.0, 2000.0)
    assert (ready.state, ready.elapsed, ready.queued) == (State.READY, 4.0, 2000.0)


def test_a_job_that_waits_too_long_is_left_in_the_queue_with_the_way_out() -> None:
    with pytest.raises(HostError, match=r"queued for more than 60 s: pending \(Priority\)") as refused:
        Script(seen(queued="pending (Priority)")).wait(queued=60.0)
    assert "invoke stop --host h" in refused.value.hint


def test_an_engine_that_does_not_answer_is_unreachable_and_never_dead() -> None:
    away = seen(alive=False, unknown="Slurm does not answer: connection refused")
    looks = Script(seen(), *[away] * 5, seen(HEALTHY)).wait()
    assert [look.state for look in looks] == [State.LOADING, *[State.UNREACHABLE] * 5, State.READY]
    with pytest.raises(HostError, match="unreachable for more than 600 s: Slurm does not answer"):
        Script(away).wait()


def test_what_an_engine_says_of_an_end_is_what_is_said() -> None:
    ended = seen(alive=False, exit={"code": 0, "signal": None, "why": "Slurm ended job 7: timeout"})
    with pytest.raises(ServerDied, match="Slurm ended job 7: timeout"):
        Script(ended).wait()
