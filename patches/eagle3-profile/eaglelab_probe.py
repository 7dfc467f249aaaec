"""Times the phases of SGLang's EAGLE decode loop with CUDA events. Put next to the worker by the eagle3-profile patch.

Stands alone: standard library, the host's own torch, Python 3.8 syntax. The patched worker calls, once a forward pass,
`enter()`, and in a decode cycle then `begin(worker, batch)`, `mark(1)` after draft, `mark(2)` after verify, `mark(3)`
after (re-)extend and `end(result of verify)`. docs/probe.md defines every number that comes out.

Two rules: never make the CPU wait for the GPU (except with EAGLE3_PROFILE_SYNC=1), and never break the server: an
exception in here switches the probe off and says so once.
"""

import functools
import json
import os
import statistics
import sys
import time
from collections import deque

__all__ = ["VERSION", "Probe", "from_environment", "probe"]

VERSION = "1.0.0"
SCHEMA = 1
RING = 8  # cycles whose events may be outstanding; the host is at most two ahead
IDLE_S = 0.25  # this long without decode before a forward pass ends a block early
GAP_FACTOR = 5  # a cycle this many times longer than the median of its predecessors is an outlier
GAP_WINDOW = 32
GAP_SAMPLES = 8
OFF = "eaglelab-off"  # requests whose id starts so are not measured

# Each phase runs from one boundary of its cycle to another; boundary 4 is the start of the next cycle.
PHASES = {"draft": (0, 1), "verify": (1, 2), "extend": (2, 3), "other": (3, 4), "total": (0, 4)}
TITLES = {"draft": "Draft steps:", "verify": "Target verify:", "extend": "Draft re-extend:", "other": "Other overhead:"}
REASONS = ("warmup", "after_prefill", "before_prefill", "batch_change", "steps_change", "idle", "gap", "ring")
# Correct drafts of each request, bonus token not included, under the names of 0.4.3.post3, 0.5.11 and 0.5.12.
CORRECT_LISTS = ("accept_length_per_req_cpu", "num_accepted_drafts_per_req_cpu", "num_correct_drafts_per_req_cpu")


class Cycle:
    """One decode cycle: four events and host times (s), its accepted counts, and why it is left out, if it is."""

    __slots__ = ("accept_lens", "copy_done", "correct", "events", "host", "next_event", "next_host", "output", "reason")
    __slots__ += ("size", "steps")

    def __init__(self, events, size, reason):
        self.events = events
        self.host = [None] * 4
        self.size = size
        self.reason = reason
        self.steps = None
        self.next_event = self.next_host = None
        self.correct = None
        self.output = self.accept_lens = self.copy_done = None

    def times_ms(self):
        """GPU and host milliseconds of each of PHASES."""
        events = self.events + [self.next_event]
        host = self.host + [self.next_host]
        gpu = {phase: events[start].elapsed_time(events[stop]) for phase, (start, stop) in PHASES.items()}
        return gpu, {phase: (host[stop] - host[start]) * 1e3 for phase, (start, stop) in PHASES.items()}

    def hold(self, output):
        """Takes what verify returned: v1 counts are a list on the CPU already, v2's are on the GPU and must wait."""
        lists = (getattr(output, name, None) for name in CORRECT_LISTS)
        found = [output] if isinstance(output, list) else [value for value in lists if isinstance(value, list)]
        if found:
            self._count(found[0])
        elif getattr(output, "accept_lens", None) is not None:
            self.output = output

    def release(self):
        """By now the scheduler has swapped `accept_lens` for its own CPU copy: keep that, free the rest (logits)."""
        output, self.output = self.output, None
        lens, done = getattr(output, "accept_lens", None), getattr(output, "copy_done", None)
        # Reading a tensor that is still on the GPU would wait for it.
        if done is not None and str(getattr(lens, "device", "")) == "cpu":
            self.accept_lens, self.copy_done = lens, done

    def counted(self):
        """True once the accepted counts are known, or known to stay unknown. v2 lens include the bonus token."""
        if self.accept_lens is not None and self.copy_done.query():
            self._count([length - 1 for length in self.accept_lens.tolist()])
            self.accept_lens = self.copy_done = None
        return self.accept_lens is None

    def _count(self, correct):
        if len(correct) == self.size and min(correct) >= 0:
            self.correct = list(correct)


class Block:
    """What the cycles of one step count and batch size add up to."""

    def __init__(self, steps, size):
        self.steps, self.size = steps, size
        self.decode_cycles = self.tokens = self.unknown = 0
        self.hist = [0] * (steps + 1)
        self.dropped = dict.fromkeys(REASONS, 0)
        self.kept_tokens = []
        self.gpu = {phase: [] for phase in PHASES}
        self.host = {phase: [] for phase in PHASES}

    def count(self, cycle):
        self.decode_cycles += 1
        if cycle.correct is None:
            self.unknown += 1
            return
        self.tokens += sum(cycle.correct) + self.size
        for correct in cycle.correct:
            self.hist.extend([0] * (correct + 1 - len(self.hist)))
            self.hist[correct] += 1

    def keep(self, cycle, gpu, host):
        self.kept_tokens.append(None if cycle.correct is None else sum(cycle.correct) + self.size)
        for phase in PHASES:
            self.gpu[phase].append(round(gpu[phase], 4))
            self.host[phase].append(round(host[phase], 4))

    def record(self):
        return {
            "steps": self.steps,
            "batch_size": self.size,
            "decode_cycles": self.decode_cycles,
            "cycles": len(self.kept_tokens),
            "tokens": self.tokens,
            "correct_hist": self.hist,
            "unknown": self.unknown,
            "dropped": self.dropped,
            "kept_tokens": self.kept_tokens,
            "event_ms": self.gpu,
            "host_ms": self.host,
        }

    def text(self, rank, sync):
        """The block for the log; means over the kept cycles, accept length over all."""
        gpu = {phase: statistics.fmean(values) for phase, values in self.gpu.items()}
        host = {phase: statistics.fmean(values) for phase, values in self.host.items()}
        how = ", synchronised at every mark (slower)" if sync else ""
        head = "EAGLE3_PROF (%d cycles, %d timed, steps=%d, bs=%d, rank %d, gpu time by cuda events%s, host timers in brackets)"
        rows = [head % (self.decode_cycles, len(self.kept_tokens), self.steps, self.size, rank, how)]
        for phase, title in TITLES.items():
            share = 100 * gpu[phase] / gpu["total"] if gpu["total"] else 0.0
            rows.append("  %-16s%9.3f ms (%5.1f%%)  [host %.3g]" % (title, gpu[phase], share, host[phase]))
        rows.append("  %-16s%9.3f ms" % ("TOTAL:", gpu["total"]))
        known = self.decode_cycles - self.unknown
        if known and gpu["total"]:
            tokens = self.tokens / known
            rows.append("  %-16s%8.2f tokens per verify, bonus token included" % ("Accept len:", tokens / self.size))
            rows.append("  %-16s%8.1f" % ("Eff tok/s:", tokens / gpu["total"] * 1e3))
        else:
            rows.append("  Accept len:      unknown (this worker keeps no count on the CPU)")
        return "\n".join(rows)


def _guarded(method):
    @functools.wraps(method)
    def call(self, *args):
        if self.active:
            try:
                method(self, *args)
            except Exception as error:
                self._turn_off(error)

    return call


class Probe:
    """Turns marks into blocks. One per process; the constructor's arguments are the settings of docs/probe.md.

    `clock` (host seconds), `now` (unix seconds), `out` (takes one text for the log) and `torch` can be replaced.
    """

    def __init__(self, every=100, warmup=10, sync=False, directory=None, torch=None, clock=None, now=None, out=None):
        self.active = True
        self._every, self._warmup, self._sync, self._directory = every, warmup, sync, directory
        self._torch = torch
        # Looked up at each call, so that a simulated machine can put its own `time` into this module.
        self._clock = clock or (lambda: time.perf_counter())
        self._now = now or (lambda: time.time())
        self._out = out or _log
        self._identity = None  # set at the first decode cycle
        self._path = None
        self._free = []
        self._pending = deque()
        self._open = self._worker = self._block = None
        self._recent = deque(maxlen=GAP_WINDOW)
        self._calls = self._decoded = self._skipped = 0
        self._after = self._size = self._steps = self._ended = None
        self._begun, self._length = None, 0.0

    @_guarded
    def enter(self):
        """Any forward pass begins: prefill, decode or idle."""
        self._calls += 1
        if self._pending and self._pending[-1].output is not None:
            self._pending[-1].release()
        # Twice the last cycle's length, because a slow model's overlapped cycles can be longer than IDLE_S themselves.
        if self._ended is not None and self._clock() - self._ended >= max(IDLE_S, 2 * self._length):
            self._interrupt("before_prefill")
            self._harvest()
            self._write(text=True)
            self._ended = None

    @_guarded
    def begin(self, worker, batch):
        """A decode cycle begins."""
        if self._open is not None:
            self._discard()
        prefilled = self._calls > 1
        self._calls = 0
        if prefilled:
            self._interrupt("before_prefill")
            self._after = "after_prefill"
        size = _size(batch)
        if size == 0 or batch.forward_mode.is_idle():
            self._interrupt("idle")
            self._after = "idle"
            return
        if any(str(getattr(req, "rid", "")).startswith(OFF) for req in getattr(batch, "reqs", None) or ()):
            self._skipped += 1
            self._interrupt("batch_change")
            self._after = "batch_change"
            return
        if self._identity is None:
            self._start(worker)
        cycle = Cycle(self._events(), size, self._reason(size))
        self._open, self._worker = cycle, worker
        self._stamp(cycle, 0)
        if self._pending:
            last = self._pending[-1]
            last.next_event, last.next_host = cycle.events[0], cycle.host[0]
        self._length = 0.0 if self._begun is None or prefilled else cycle.host[0] - self._begun
        self._begun = cycle.host[0]

    @_guarded
    def mark(self, index):
        """Phase `index` (1 draft, 2 verify, 3 extend) has been launched."""
        if self._open is None:
            return
        self._stamp(self._open, index)
        if index == 1:
            # v2 picks its step count at the start of a cycle and v1 at the end; after draft it is this cycle's own.
            self._open.steps = steps = _steps(self._worker)
            if self._steps not in (None, steps):
                self._open.reason = self._open.reason or "steps_change"
            self._steps = steps
            # The GPU has the draft to do, so what follows here costs it nothing.
            self._harvest()

    @_guarded
    def end(self, output):
        """The decode cycle returns; `output` is what verify returned."""
        cycle, self._open, self._worker = self._open, None, None
        if cycle is None:
            return
        if cycle.host[3] is None:
            self._stamp(cycle, 3)
        cycle.hold(output)
        self._pending.append(cycle)
        self._ended = self._clock()

    def _start(self, worker):
        if self._torch is None:
            import torch

            self._torch = torch
        new_event = functools.partial(self._torch.cuda.Event, enable_timing=True)
        self._free = [[new_event() for _ in range(4)] for _ in range(RING)]
        rank, world = _rank(self._torch)
        self._identity = {"probe": VERSION, "sglang": _sglang(), "class": type(worker).__name__}
        self._identity.update(rank=rank, world=world, pid=os.getpid())
        line = "EAGLE3_PROF probe %s active: class=%s rank=%d/%d sglang=%s clock=cuda-events"
        line %= VERSION, self._identity["class"], rank, world, self._identity["sglang"]
        self._out(line + (" sync=1" if self._sync else ""))
        if self._directory:
            os.makedirs(self._directory, exist_ok=True)
            self._path = os.path.join(self._directory, "rank%d.%d.jsonl" % (rank, os.getpid()))
            self._append("start", {})

    def _events(self):
        if not self._free:
            self._harvest()
        if not self._free:
            oldest = self._pending.popleft()
            oldest.reason = oldest.reason or "ring"
            self._account(oldest)
        return self._free.pop()

    def _reason(self, size):
        """Why this cycle cannot be kept whatever its times are; None if it can."""
        self._decoded += 1
        after, self._after = self._after, None
        before, self._size = self._size, size
        if self._decoded <= self._warmup:
            return "warmup"
        return after or ("batch_change" if before not in (None, size) else None)

    def _stamp(self, cycle, index):
        if self._sync:
            self._torch.cuda.synchronize()
        cycle.events[index].record()
        cycle.host[index] = self._clock()

    def _interrupt(self, reason):
        """Something other than decode follows the last cycle, so its `other` and `total` mean nothing."""
        if self._pending and self._pending[-1].next_event is None:
            self._pending[-1].reason = self._pending[-1].reason or reason

    def _discard(self):
        """The worker raised before end(): forget its cycle, and with it where the one before ended."""
        self._free.append(self._open.events)
        self._open = self._worker = None
        if self._pending:
            self._pending[-1].reason = self._pending[-1].reason or "gap"

    def _harvest(self):
        """Accounts for the cycles that are over, oldest first."""
        while self._pending:
            cycle = self._pending[0]
            # Events of one stream end in order, and the next cycle's first one comes after all of this one's.
            over = cycle.reason or (cycle.next_event is not None and cycle.next_event.query())
            if not over or not cycle.counted():
                return
            self._account(self._pending.popleft())

    def _account(self, cycle):
        block = self._block
        if block is None or (block.steps, block.size) != (cycle.steps, cycle.size):
            self._write(text=False)
            self._recent.clear()
            block = self._block = Block(cycle.steps, cycle.size)
        block.count(cycle)
        if cycle.reason is None:
            gpu, host = cycle.times_ms()
            if len(self._recent) >= GAP_SAMPLES and gpu["total"] > GAP_FACTOR * statistics.median(self._recent):
                cycle.reason = "gap"
            else:
                block.keep(cycle, gpu, host)
            self._recent.append(gpu["total"])
        if cycle.reason:
            block.dropped[cycle.reason] += 1
        self._free.append(cycle.events)
        if block.decode_cycles >= self._every:
            self._write(text=True)

    def _write(self, text):
        """Ends the block. It is on disk when this returns, so a killed server loses at most the next one."""
        block, self._block = self._block, None
        if block is None:
            return
        if self._path:
            self._append("block", dict(block.record(), skipped=self._skipped))
        self._skipped = 0
        if text and block.kept_tokens and self._identity["rank"] == 0:
            self._out(block.text(0, self._sync))

    def _append(self, kind, content):
        record = {"kind": kind, "schema": SCHEMA}
        record.update(self._identity, time=round(self._now(), 3), every=self._every, sync=self._sync)
        record.update(content)
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record, separators=(",", ":")) + "\n")

    def _turn_off(self, error):
        global probe
        self.active = False
        if probe is self:
            probe = None
        self._open = self._worker = None
        self._pending.clear()
        try:
            self._out("EAGLE3_PROF probe off: %s: %s" % (type(error).__name__, error))
        except Exception:
            return


def _size(batch):
    reqs = getattr(batch, "reqs", None)
    return len(reqs) if reqs is not None else batch.seq_lens.shape[0]


def _steps(worker):
    steps = getattr(worker, "speculative_num_steps", None)
    return int(worker.server_args.speculative_num_steps if steps is None else steps)


def _rank(torch):
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _sglang():
    try:
        from sglang.version import __version__
    except Exception:
        return "unknown"
    return str(__version__)


def _log(text):
    # One write, so that ranks do not tear each other's lines.
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def from_environment(environ):
    """The probe that EAGLE3_PROFILE and its companions ask for; None when it is unset or 0."""
    if environ.get("EAGLE3_PROFILE", "") in ("", "0"):
        return None
    try:
        return Probe(
            every=max(1, int(environ.get("EAGLE3_PROFILE_EVERY", 100))),
            warmup=int(environ.get("EAGLE3_PROFILE_WARMUP", 10)),
            sync=environ.get("EAGLE3_PROFILE_SYNC", "") not in ("", "0"),
            directory=environ.get("EAGLE3_PROFILE_DIR") or None,
        )
    except ValueError as error:
        _log("EAGLE3_PROF probe off: %s" % error)
        return None


probe = from_environment(os.environ)
