"""A GPU as discrete virtual time: one host clock, one stream, events, and tensors that are ready later.

All times are virtual seconds since the clock was made; all durations given by callers are milliseconds. Host code
takes no virtual time unless it says so (`Clock.advance`), so a probe costs nothing here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Clock", "Event", "GpuTensor", "Stream", "VirtualTime", "cuda_namespace"]


class Clock:
    """Virtual host time that is kept `rate` times faster than wall time.

    `pace` sleeps against one fixed start, so rounding and late wake-ups never add up: after a slow cycle the next
    ones are not slept through until the clock has caught up.
    """

    def __init__(
        self,
        rate: float,
        *,
        wall: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        unix: Callable[[], float] = time.time,
    ) -> None:
        self.rate = rate
        self.now = 0.0
        self.unix_start = unix()
        self._wall, self._sleep = wall, sleep
        self._wall_start = wall()

    def advance(self, ms: float) -> None:
        """The host is busy for `ms`."""
        self.now += ms / 1e3

    def wait_until(self, moment: float) -> None:
        """The host blocks until `moment` (no effect if that has passed)."""
        self.now = max(self.now, moment)

    def pace(self) -> None:
        """Let wall time catch up with virtual time."""
        ahead = self._wall_start + self.now / self.rate - self._wall()
        if ahead > 0:
            self._sleep(ahead)

    def catch_up(self) -> None:
        """After idling: let virtual time catch up with wall time."""
        self.wait_until((self._wall() - self._wall_start) * self.rate)


class VirtualTime:
    """Stands in for the module `time` in code that runs on the simulated machine."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def perf_counter(self) -> float:
        return self._clock.now

    monotonic = perf_counter

    def perf_counter_ns(self) -> int:
        return round(self._clock.now * 1e9)

    monotonic_ns = perf_counter_ns

    def time(self) -> float:
        return self._clock.unix_start + self._clock.now

    def time_ns(self) -> int:
        return round(self.time() * 1e9)

    def sleep(self, seconds: float) -> None:
        self._clock.advance(seconds * 1e3)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class Stream:
    """Work in launch order; `free_at` is when the last piece of it ends."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.free_at = 0.0

    def launch(self, gpu_ms: float, host_ms: float = 0.0) -> None:
        """Queue `gpu_ms` of work and return to the host after `host_ms`.

        The work starts at once where the stream is free: what launching costs the GPU is part of `gpu_ms`, as it is
        part of what events measure.
        """
        self.free_at = max(self.free_at, self.clock.now) + gpu_ms / 1e3
        self.clock.advance(host_ms)

    def synchronize(self) -> None:
        """Block the host until all queued work has ended."""
        self.clock.wait_until(self.free_at)


class Event:
    """`torch.cuda.Event` on the one stream. Reading an event that is not done is an error, as on a GPU."""

    def __init__(self, stream: Stream, enable_timing: bool = False, **_ignored: Any) -> None:
        self._stream = stream
        self._timing = enable_timing
        self._done_at: float | None = None

    def record(self, _stream: Any = None) -> None:
        self._done_at = max(self._stream.free_at, self._stream.clock.now)

    def query(self) -> bool:
        """True once everything queued before `record` has ended (and, as on a GPU, before any record)."""
        return self._done_at is None or self._done_at <= self._stream.clock.now

    def synchronize(self) -> None:
        if self._done_at is not None:
            self._stream.clock.wait_until(self._done_at)

    def wait(self, _stream: Any = None) -> None:
        """Make the stream wait for the event: nothing to do where there is one stream."""

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to `end`.

        Raises:
            RuntimeError: one of the two has no timing, was never recorded, or is not done yet.
        """
        if not (self._timing and end._timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._done_at is None or end._done_at is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return (end._done_at - self._done_at) * 1e3


class GpuTensor:
    """A one-dimensional integer tensor whose values exist from `ready_at` on.

    Reading one on the GPU blocks the host. A copy made with `non_blocking=True` can be read at once but holds zeros
    until the copy is done: code that does not wait for the copy reads wrong values, as it would on a GPU.
    """

    def __init__(self, values: Sequence[int], clock: Clock, ready_at: float, device: str = "cuda") -> None:
        self._values = list(values)
        self._clock = clock
        self._ready_at = ready_at
        self.device = device
        self.is_cuda = device == "cuda"
        self.is_cpu = not self.is_cuda
        self.shape = (len(self._values),)

    def to(self, device: str, non_blocking: bool = False) -> GpuTensor:
        if not non_blocking:
            self._clock.wait_until(self._ready_at)
        return GpuTensor(self._values, self._clock, self._ready_at, device)

    def cpu(self) -> GpuTensor:
        return self.to("cpu")

    def tolist(self) -> list[int]:
        if self.is_cuda:
            self._clock.wait_until(self._ready_at)
        return list(self._values) if self._clock.now >= self._ready_at else [0] * len(self._values)

    def sum(self) -> GpuTensor:
        return GpuTensor([sum(self._values)], self._clock, self._ready_at, self.device)

    def item(self) -> int:
        (value,) = self.tolist()
        return value

    def __len__(self) -> int:
        return len(self._values)


def cuda_namespace(stream: Stream) -> dict[str, Any]:
    """What `torch.cuda` offers on the simulated GPU, by name."""

    def event(*, enable_timing: bool = False, **options: Any) -> Event:
        return Event(stream, enable_timing, **options)

    return {
        "Event": event,
        "synchronize": lambda *_device: stream.synchronize(),
        "current_stream": lambda *_device: stream,
        "default_stream": lambda *_device: stream,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_current_stream_capturing": lambda: False,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_name": lambda *_device: "simulated GPU",
    }
