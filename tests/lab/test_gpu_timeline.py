from __future__ import annotations

import time

import pytest

from eaglelab.lab.standin.gpu import Clock, Event, GpuTensor, Stream, VirtualTime


@pytest.fixture
def clock() -> Clock:
    return Clock(5.0, wall=lambda: 0.0, sleep=lambda _seconds: None, unix=lambda: 1000.0)


def test_launching_returns_at_once_and_the_work_queues(clock: Clock) -> None:
    stream = Stream(clock)
    stream.launch(10.0, host_ms=0.3)
    stream.launch(5.0, host_ms=0.3)
    assert clock.now == pytest.approx(0.0006)
    assert stream.free_at == pytest.approx(0.015)


def test_work_launched_on_an_idle_stream_starts_now(clock: Clock) -> None:
    stream = Stream(clock)
    stream.launch(1.0)
    clock.advance(20.0)
    stream.launch(3.0)
    assert stream.free_at == pytest.approx(0.023)


def test_synchronize_blocks_the_host_until_the_stream_is_free(clock: Clock) -> None:
    stream = Stream(clock)
    stream.launch(10.0, host_ms=1.0)
    stream.synchronize()
    assert clock.now == pytest.approx(0.010)


def test_events_measure_the_gpu_where_the_host_measures_launches(clock: Clock) -> None:
    stream = Stream(clock)
    begin, end = Event(stream, enable_timing=True), Event(stream, enable_timing=True)
    began = clock.now
    begin.record()
    stream.launch(10.0, host_ms=0.3)
    end.record()
    assert (clock.now - began) * 1e3 == pytest.approx(0.3)
    assert not end.query()
    end.synchronize()
    assert end.query()
    assert begin.elapsed_time(end) == pytest.approx(10.0)


def test_an_event_recorded_behind_queued_work_is_done_after_it(clock: Clock) -> None:
    stream = Stream(clock)
    stream.launch(4.0)
    event = Event(stream)
    event.record()
    clock.advance(3.9)
    assert not event.query()
    clock.advance(0.2)
    assert event.query()


@pytest.mark.parametrize(
    ("timing", "recorded", "waited", "message"),
    [(False, True, True, "enable_timing"), (True, False, True, "recorded"), (True, True, False, "completed")],
)
def test_reading_an_event_too_early_is_an_error(
    clock: Clock, timing: bool, recorded: bool, waited: bool, message: str
) -> None:
    stream = Stream(clock)
    begin, end = Event(stream, enable_timing=timing), Event(stream, enable_timing=timing)
    begin.record()
    stream.launch(1.0)
    if recorded:
        end.record()
    if waited:
        stream.synchronize()
    with pytest.raises(RuntimeError, match=message):
        begin.elapsed_time(end)


def test_a_gpu_tensor_blocks_its_reader(clock: Clock) -> None:
    tensor = GpuTensor([3, 1], clock, ready_at=0.5)
    assert tensor.tolist() == [3, 1]
    assert clock.now == 0.5


def test_a_copy_read_before_it_is_done_holds_zeros(clock: Clock) -> None:
    copy = GpuTensor([3, 1], clock, ready_at=0.5).to("cpu", non_blocking=True)
    assert clock.now == 0.0
    assert copy.tolist() == [0, 0]
    clock.wait_until(0.5)
    assert copy.tolist() == [3, 1]


def test_pacing_sleeps_against_one_start_and_never_drifts() -> None:
    wall, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        wall[0] += seconds + 0.003  # every wake-up is late

    clock = Clock(5.0, wall=lambda: wall[0], sleep=sleep)
    for _ in range(1000):
        clock.advance(50.0)
        clock.pace()
    assert clock.now == pytest.approx(50.0)
    assert wall[0] == pytest.approx(10.0, abs=0.004)
    assert slept[0] == pytest.approx(0.010)


def test_after_idling_the_clock_is_where_wall_time_puts_it() -> None:
    wall = [0.0]
    clock = Clock(5.0, wall=lambda: wall[0], sleep=lambda _seconds: None)
    wall[0] = 2.0
    clock.catch_up()
    assert clock.now == 10.0
    clock.wait_until(12.0)
    clock.catch_up()
    assert clock.now == 12.0


def test_code_on_the_simulated_machine_reads_the_virtual_clock(clock: Clock) -> None:
    stand_in = VirtualTime(clock)
    clock.advance(250.0)
    stand_in.sleep(1.0)
    assert stand_in.perf_counter() == stand_in.monotonic() == 1.25
    assert stand_in.perf_counter_ns() == 1_250_000_000
    assert stand_in.time() == 1001.25
    assert stand_in.strftime is time.strftime
