"""Times the phases of SGLang's EAGLE decode loop with CUDA events, and lets request ids choose the step count.

Put next to the worker by the eagle3-profile patch. Stands alone: standard library, the host's own torch, Python 3.8
syntax. The patched worker calls, once a forward pass, `enter()`, and in a decode cycle then `begin(worker, batch)`,
`mark(1)` after draft, `mark(2)` after verify, `mark(3)` after (re-)extend and `end(result of verify, graph or not)`;
later, where the release has it, `verified(worker, correct drafts)`.
docs/probe.md defines every number that comes out.

Two rules: never make the CPU wait for the GPU (except with EAGLE3_PROFILE_SYNC=1), and never break the server: an
exception in here switches the probe off and says so once. Every cycle is counted; where cycles are short, one of several
is timed, so that measuring stays cheap. What runs in a cycle is kept flat and short, for speed: between two of them so much
else runs that none of this is in the CPU's caches any more. It only records events, reads the clock and holds what verify
returned. Once `every` cycles have gathered, one cycle, which is not timed, reads their times, adds them up and writes them.
"""
# eaglelab:eagle3-profile - by this line a file under this name is known to have come with the patch

import itertools
import json
import math
import os
import random
import re
import sys
import time
import weakref
from collections import Counter, deque

__all__ = ["VERSION", "Probe", "StepChooser", "from_environment", "probe"]

VERSION = "1.4.1"
SCHEMA = 1
RING = 128  # cycles whose events may be outstanding
GATHER = 112  # of these, so many are read at once at most; the host is at most two ahead of the GPU
UNREAD = 8  # cycles whose counts the scheduler may still tell; it is at most two behind
IDLE_S = 0.25  # this long without decode before a forward pass writes what there is
TIMED_MS = 0.08  # what timing a cycle takes of the host, its reading and writing included (docs/probe.md)
TIMED_SHARE = 0.002  # of the time of decode that this may take
GAP_FACTOR = 5  # a cycle this many times longer than the median of a window before it is an outlier
GAP_WINDOW = 8
RID = re.compile(r"(?:k=(\d{1,3})/)?(?:p=([01])/)?(?:k=(\d{1,3})/)?", re.ASCII)  # how a request id may begin

PHASES = ("draft", "verify", "extend", "other", "total")
CLOCKS = ("event_ms", "host_ms")
TITLES = {"draft": "Draft steps:", "verify": "Target verify:", "extend": "Draft re-extend:", "other": "Other overhead:"}
REASONS = ("warmup", "after_prefill", "before_prefill", "batch_change", "steps_change", "idle", "gap", "ring", "write")
REASONS += ("untimed",)
# Correct drafts of each request, bonus token not included, under the names of 0.4.3.post3, 0.5.11 and 0.5.12.
CORRECT_LISTS = ("accept_length_per_req_cpu", "num_accepted_drafts_per_req_cpu", "num_correct_drafts_per_req_cpu")
TOLD = CORRECT_LISTS[-1]  # what the scheduler hands over, and keeps
ENCODE = json.JSONEncoder(separators=(",", ":")).encode


class Cycle:
    """One decode cycle: its events and host times (s) at four boundaries, what was accepted, why it is not kept.

    The fifth boundary is the first one of `next`, the cycle after. Made once for each slot of the ring.
    """

    __slots__ = ("asked", "copied", "correct", "events", "graph", "held", "host", "lens", "next", "reason", "records")
    __slots__ += ("result", "size", "steps", "timed")

    def __init__(self, events, records):
        self.events, self.records, self.host = events, records, [0.0] * 4
        self.clear()

    def clear(self):
        """Makes it ready for its next use, which most likely is not timed, so that a cycle need not when it begins."""
        self.next = self.steps = self.asked = self.graph = self.host[3] = None
        self.correct = self.held = self.result = self.lens = self.copied = None
        self.reason, self.timed = "untimed", False

    def times_ms(self):
        """Milliseconds of each of PHASES, on the GPU and then on the host: ten in a row."""
        (e0, e1, e2, e3), e4 = self.events, self.next.events[0]
        (h0, h1, h2, h3), h4 = self.host, self.next.host[0]
        g0, g1, g2, g3 = e0.elapsed_time(e1), e1.elapsed_time(e2), e2.elapsed_time(e3), e3.elapsed_time(e4)
        host = (h1 - h0) * 1e3, (h2 - h1) * 1e3, (h3 - h2) * 1e3, (h4 - h3) * 1e3, (h4 - h0) * 1e3
        return (g0, g1, g2, g3, g0 + g1 + g2 + g3, *host)

    def ended(self):
        # Events of one stream end in order, and the next cycle's first one comes after all of this one's.
        return self.timed and self.next is not None and self.next.events[0].query()

    def hold(self, result, graph, late):
        """Takes what verify returned, if it is not the list itself: what has one, or a result of v2 whose counts are on the GPU.

        `late` is the class of such a result, once one was seen.
        """
        if type(result) is late and result.accept_lens is not None:
            self.held, self.result = result, weakref.ref(result)
        else:
            for name in CORRECT_LISTS:
                correct = getattr(result, name, None)
                if isinstance(correct, list):
                    self.take(correct)
                    break
            else:
                if getattr(result, "accept_lens", None) is not None:
                    self.held, self.result = result, weakref.ref(result)
        graph = getattr(result, "can_run_cuda_graph", None) if graph is None else graph
        self.graph = graph if isinstance(graph, bool) else None

    def look(self):
        """By the next pass the scheduler of v2 has swapped `accept_lens` for its own CPU copy, done or under way.

        Of the result itself, which holds the logits too, only a weak reference is kept from then on.
        """
        result, self.held = self.held, None
        lens, copied = getattr(result, "accept_lens", None), getattr(result, "copy_done", None)
        # Reading a tensor that is still on the GPU would wait for it.
        if copied is not None and getattr(lens, "is_cpu", None) is True:
            self.lens, self.copied = lens, copied

    def counted(self):
        """True once the correct drafts are known, or are sure to stay unknown."""
        if self.correct is None and self.copied is not None:
            if not self.copied.query():
                return False
            self.take([length - 1 for length in self.lens.tolist()])  # v2 lengths include the bonus token
        return self.correct is not None or self.result is None or self.result() is None

    def take(self, correct):
        self.correct = correct
        self.held = self.result = self.lens = self.copied = None


class Block:
    """The cycles of one step count and batch size between two writes."""

    def __init__(self, steps, size):
        self.steps, self.size = steps, size
        self.cycles = []  # of each: why it is not kept, correct drafts, graph or not, asked, times_ms if kept
        self.recent, self.limit = [], float("inf")  # ms; a total above the limit is an outlier

    def add(self, cycle):
        reason, times = cycle.reason, None
        if reason is None:
            times = cycle.times_ms()
            total = times[4]
            if total > self.limit:
                reason, times = "gap", None
            self.recent.append(total)
            if len(self.recent) == GAP_WINDOW:
                self.recent.sort()
                self.limit = GAP_FACTOR * self.recent[GAP_WINDOW // 2]
                self.recent.clear()
        correct = cycle.correct
        if correct is not None and (len(correct) != self.size or min(correct) < 0):
            correct = None  # not the counts of this batch
        self.cycles.append((reason, correct, cycle.graph, cycle.asked, times))

    def record(self):
        """What the cycles add up to, under the names of docs/probe.md, times not rounded; the block is empty after."""
        cycles, self.cycles = self.cycles, []
        reasons, corrects, graphs, asked, times = zip(*cycles)
        reasons, graphs, asked = Counter(reasons), Counter(graphs), Counter(asked)
        known = [correct for correct in corrects if correct is not None]
        drafts = Counter(itertools.chain.from_iterable(known))
        kept = [pair for pair in zip(corrects, times) if pair[1] is not None]
        record = {
            "steps": self.steps,
            "batch_size": self.size,
            "decode_cycles": len(cycles),
            "cycles": len(kept),
            "tokens": sum(map(sum, known)) + self.size * len(known),
            "correct_hist": [drafts[count] for count in range(max(self.steps, *drafts, 0) + 1)],
            "unknown": len(cycles) - len(known),
            "dropped": {reason: reasons[reason] for reason in REASONS},
            "skipped": 0,
            "kept_tokens": [None if correct is None else sum(correct) + self.size for correct, _ in kept],
        }
        columns = list(zip(*[times for _, times in kept])) or [()] * 10
        record["event_ms"], record["host_ms"] = _by_phase(columns[:5]), _by_phase(columns[5:])
        if graphs[True] or graphs[False]:
            record["graph"] = {"cuda_graph": graphs[True], "eager": graphs[False]}
        del asked[None]
        if asked:
            record["steps_from_rid"] = [
                {"wanted": wanted, "active": self.steps, "why": why, "cycles": count}
                for (wanted, why), count in asked.items()
            ]
        return record


class StepChooser:
    """Lets request ids choose the step count, through the worker's AdaptiveController, whose own policy rests.

    Every rank sees the same ids in the same cycle, so all of them switch together without a word between them. Where
    measuring is off, it stands in for the probe.
    """

    def __init__(self, out=None):
        self._out = out or _log
        self._worker = self._controller = self._launched = self._target = self._rids = None
        self._asked = None, None  # steps that the batch asks for, why it does not get them
        self._said = set()
        self.enter = self.mark = self.end = self.verified = _nothing

    def begin(self, worker, batch):
        """A decode cycle begins. What its requests ask for is made so where the controller would decide itself."""
        try:
            rids = [req.rid for req in getattr(batch, "reqs", None) or ()]
            if rids and rids != self._rids:
                if self._worker is None:
                    self._take_over(worker)
                self._rids = rids
                self._choose({_read(rid)[0] for rid in rids})
        except Exception as error:
            self._turn_off(error)

    def asked(self, active):
        """The steps that this cycle's requests asked for (None: no one count), and why `active` are not these."""
        wanted, why = self._asked
        return wanted, "not yet" if why is None and wanted not in (None, active) else why

    def _take_over(self, worker):
        self._worker, self._launched = worker, _steps(worker)
        self._controller = controller = getattr(worker, "adaptive_controller", None)
        if controller is None:
            self._say("EAGLE3_STEPS inactive: the worker has no adaptive controller")
        elif hasattr(type(controller), "activate_step_by_batch"):
            # From 0.5.13 on: KV room is kept for the largest step count, so a cycle may begin with another one.
            controller.activate_step_by_batch, controller.on_verify_complete = self._activate, _nothing
        else:
            # KV room is kept for the step count at hand, which therefore changes after a cycle only.
            controller.on_verify_complete = self._activate
        if controller is not None:
            candidates = ",".join(map(str, controller.candidate_steps))
            self._say("EAGLE3_STEPS active: launched with %d steps, captured %s" % (self._launched, candidates))

    def _choose(self, wanted):
        if len(wanted) > 1:
            self._target, self._asked = None, (None, "requests differ")
        else:
            (steps,) = wanted
            why = None if steps is None else self._obstacle(steps)
            # Whoever asks for nothing, or for what cannot be had, gets what the launch asked for.
            self._target = self._launched if steps is None or why else steps
            self._asked = steps, why
        steps, why = self._asked
        if why and self._asked not in self._said:
            self._said.add(self._asked)  # bounded: an id has three digits for it
            self._say("EAGLE3_STEPS k=%s served unchanged: %s" % ("?" if steps is None else steps, why))

    def _obstacle(self, steps):
        if self._controller is None:
            return "no controller"
        return None if steps in self._controller.candidate_steps else "not captured"

    def _activate(self, *_args, **_kwargs):
        """In place of the controller's own decision."""
        try:
            if self._target is not None and self._target != self._worker.speculative_num_steps:
                self._controller._activate(self._target)
        except Exception as error:
            self._turn_off(error)

    def _say(self, text):
        # A log that only one rank cannot write to must not make that rank choose otherwise.
        try:
            self._out(text)
        except Exception:
            return

    def _turn_off(self, error):
        global probe
        if probe is self:
            probe = None
        for name in ("activate_step_by_batch", "on_verify_complete"):
            getattr(self._controller, "__dict__", {}).pop(name, None)
        self.begin, self._asked = _nothing, (None, "off")
        self._say("EAGLE3_STEPS off: %s: %s" % (type(error).__name__, error))


class Probe:
    """Turns marks into blocks. One per process; the constructor's arguments are the settings of docs/probe.md.

    `timed`: one of so many cycles is timed; None: of as many as TIMED_SHARE needs, where nothing synchronises.
    `clock` (host seconds), `now` (unix seconds), `out` (takes one text for the log) and `torch` can be replaced.
    `chooser` is told of each cycle first, and outlives the probe: what goes wrong on one rank only, such as a full disk,
    must not change the steps of that rank.
    """

    def __init__(
        self,
        every=100,
        warmup=10,
        sync=False,
        directory=None,
        torch=None,
        clock=None,
        now=None,
        out=None,
        chooser=None,
        timed=None,
    ):
        self._chooser = chooser
        self._stride, self._adapts = timed or 1, timed is None and not sync
        self._place = 0  # of the timed one among its `stride` cycles
        self._rest = 0  # cycles that are not timed before the next one that is
        self._random = random.Random(0)  # every rank times the same cycles while their strides agree
        self._every, self._warmup, self._sync, self._directory = every, warmup, sync, directory
        self._torch = torch
        self._clock, self._now, self._out = clock or time.perf_counter, now or time.time, out or _log
        self._identity = self._path = None  # set at the first decode cycle, as is the ring
        self._ring = []
        self._first = self._next = 0  # cycles that have ended and wait for the GPU: first <= number < next
        self._open = self._last = self._worker = None
        self._unread = deque(maxlen=UNREAD)  # cycles of which the scheduler may still tell the counts
        self._blocks = {}
        self._due = min(every, GATHER)  # the number of cycles with which enough have gathered
        self._passes = self._decoded = self._skipped = self._unwritten = 0
        self._after = self._size = self._steps = self._late = None
        self._entered = self._begun = None  # when this pass was, and when the last cycle was
        self._idle = True  # nothing was decoded since the last pause
        self._pause = IDLE_S
        self._gap = None  # between the last two cycles, None where a prefill came between them
        self._count = self._rid = None  # of the batch: its requests, and the id of the last of them
        self._muted = False
        self._stream = self._handle = None  # the worker's, on which events are recorded, and CUDA's name of it

    def enter(self):
        """Any forward pass begins: prefill, decode or idle."""
        try:
            self._passes += 1
            last = self._last
            if last is not None and last.held is not None:
                last.look()
            entered = self._entered = self._clock()
            if not self._idle and entered - self._begun >= self._pause:
                self._interrupt("before_prefill")
                self._harvest()
                self._write()
                self._idle = True
        except Exception as error:
            self._turn_off(error)

    def begin(self, worker, batch):
        """A decode cycle begins."""
        if self._chooser is not None:
            self._chooser.begin(worker, batch)
        try:
            if self._passes == 1 and self._open is None and self._recurs(batch):
                return
            self._begin(worker, batch)
        except Exception as error:
            self._turn_off(error)

    def _recurs(self, batch):
        """Whether a cycle is of the same batch as the last one and not to be timed: most are. If so, it has begun."""
        last = self._last
        if not self._muted and (last is None or not self._rest):
            return False
        reqs = getattr(batch, "reqs", None)
        if not reqs or reqs[-1].rid is not self._rid or len(reqs) != self._count:
            return False
        if self._muted:
            self._skipped += 1
        elif self._next - self._first == RING:
            return False
        else:
            self._rest -= 1
            self._begun = self._entered
            self._open = cycle = self._ring[self._next % RING]
            cycle.size = self._count
            if last.timed:
                self._mark_start(cycle)
                last.next = cycle
        self._passes = 0
        return True

    def _begin(self, worker, batch):
        if self._open is not None:
            # The worker raised before end(): its cycle is forgotten, and with it where the one before ended.
            self._open.clear()
            self._open = None
            self._interrupt("gap")
        prefilled, self._passes = self._passes > 1, 0
        if prefilled:
            self._interrupt("before_prefill", "after_prefill")
        reqs = getattr(batch, "reqs", None)
        size = batch.seq_lens.shape[0] if reqs is None else len(reqs)
        if size == 0 or batch.forward_mode.is_idle():
            self._rid = None
            self._interrupt("idle", "idle")
            return
        # New requests come with a prefill, or (disaggregated) at the end of the list.
        rid = reqs[-1].rid if reqs else None
        if prefilled or rid is None or rid != self._rid or size != self._count:
            self._muted = not all(_read(req.rid)[1] for req in reqs or ())
        self._count, self._rid = size, rid
        if self._muted:
            self._skipped += 1
            self._interrupt("batch_change", "batch_change")
            return
        if not self._ring:
            self._start(worker)
        if self._next - self._first == RING:
            self._harvest(room=1)
        cycle, last = self._ring[self._next % RING], self._last
        reason = self._reason(size)
        timed = reason is None and self._picks()
        cycle.size, cycle.reason, cycle.timed = size, reason if timed else reason or "untimed", timed
        cycle.next = None  # one that was accounted for early was told its next after that
        if timed or (last is not None and last.timed):
            self._mark_start(cycle)
        if last is not None:
            last.next = cycle
        # A slow model's overlapped cycles can be longer than IDLE_S themselves; one that stalled says nothing of that.
        begun = self._entered
        gap = None if self._begun is None or prefilled else begun - self._begun
        usual = gap if self._gap is None or (gap is not None and gap < self._gap) else self._gap
        self._pause = IDLE_S if gap is None or 2 * usual < IDLE_S else 2 * usual
        self._gap, self._begun, self._idle = gap, begun, False
        self._open, self._worker = cycle, worker

    def mark(self, index):
        """Phase `index` (1 draft, 2 verify, 3 extend) has been launched."""
        try:
            cycle = self._open
            if cycle is None:
                return
            if cycle.timed:
                cycle.records[index](self._stream)
                cycle.host[index] = self._clock()
            if index == 1:
                # v2 picks its step count at the start of a cycle and v1 at the end; after draft it is this cycle's own.
                steps = _steps(self._worker) if self._from_arguments else self._worker.speculative_num_steps
                cycle.steps = steps
                if steps != self._steps:
                    if self._steps is not None:
                        cycle.reason = cycle.reason or "steps_change"
                    self._steps = steps
                if self._chooser is not None:
                    cycle.asked = self._chooser.asked(steps)
                # The GPU has the draft to do meanwhile.
                if self._next >= self._due and (self._stride == 1 or not cycle.timed):
                    self._gather(cycle)
        except Exception as error:
            self._turn_off(error)

    def end(self, result, graph=None):
        """The decode cycle returns; `result` is what verify returned, `graph` whether its target ran as a CUDA graph."""
        try:
            cycle = self._open
            if cycle is None:
                return
            if cycle.timed and cycle.host[3] is None:
                self.mark(3)
            if type(result) is list:
                cycle.correct = result
                cycle.graph = graph if isinstance(graph, bool) else None
            else:
                cycle.hold(result, graph, self._late)
                if cycle.result is not None:
                    self._late = type(result)
                    self._unread.append(cycle)
            self._open, self._last = None, cycle
            self._next += 1
        except Exception as error:
            self._turn_off(error)

    def verified(self, _worker, correct):
        """The scheduler has read a v2 cycle's correct drafts (from 0.5.12 on), one cycle late where it overlaps.

        It passes the very list that it keeps on the cycle's result, so the cycle is known for sure; a list that belongs
        to no waiting cycle (one that was not measured) is ignored.
        """
        try:
            unread = self._unread
            for place, cycle in enumerate(unread):
                result = cycle.result
                if result is not None and getattr(result(), TOLD, None) is correct:
                    cycle.take(correct)
                    unread.popleft()
                    for _ in range(place):  # those before it were dropped unread
                        unread.popleft()
                    return
        except Exception as error:
            self._turn_off(error)

    def _start(self, worker):
        if self._torch is None:
            import torch

            self._torch = torch
        self._from_arguments = getattr(worker, "speculative_num_steps", None) is None
        event = self._torch.cuda.Event
        # What torch's own compiler calls; where there is none, the stream is looked up in every cycle.
        self._current = getattr(getattr(self._torch, "_C", None), "_cuda_getCurrentRawStream", None)
        self._device = None if self._current is None else self._torch.cuda.current_device()
        for _ in range(RING):
            events = [event(enable_timing=True) for _ in range(4)]
            self._ring.append(Cycle(events, [self._recorder(each) for each in events]))
        rank, world = _rank(self._torch)
        self._identity = {"probe": VERSION, "sglang": _sglang(), "class": type(worker).__name__}
        self._identity.update(rank=rank, world=world, pid=os.getpid())
        line = "EAGLE3_PROF probe %s active: class=%s rank=%d/%d sglang=%s clock=cuda-events"
        line %= VERSION, self._identity["class"], rank, world, self._identity["sglang"]
        self._out(line + (" sync=1: SYNCHRONISED AT EVERY MARK, the server is slower" if self._sync else ""))
        if self._directory:
            os.makedirs(self._directory, exist_ok=True)
            self._path = os.path.join(self._directory, "rank%d.%d.jsonl" % (rank, os.getpid()))
        self._append([self._record("start", {})])

    def _recorder(self, event):
        """What a mark calls, with the stream."""
        if not self._sync:
            return event.record
        synchronize = self._torch.cuda.synchronize

        def record(stream):
            synchronize()
            event.record(stream)

        return record

    def _mark_start(self, cycle):
        """Marks the start of a cycle, on the stream that the worker is on by now.

        torch makes a new object of it each time it is asked for it, which takes longer than an event.
        """
        if self._current is None or self._current(self._device) != self._handle:
            self._stream = self._torch.cuda.current_stream()
            self._handle = None if self._current is None else self._current(self._device)
        cycle.records[0](self._stream)
        cycle.host[0] = self._clock()

    def _reason(self, size):
        """Why this cycle cannot be kept whatever its times are; None if it can."""
        self._decoded += 1
        after, self._after = self._after, None
        before, self._size = self._size, size
        if self._decoded <= self._warmup:
            return "warmup"
        return after or ("batch_change" if before not in (None, size) else None)

    def _picks(self):
        """Whether a cycle that can be kept is timed: one of each `stride`, by chance, so that nothing recurs with them."""
        if self._rest:
            self._rest -= 1
            return False
        after, self._place = self._stride - 1 - self._place, self._random.randrange(self._stride)
        self._rest = after + self._place
        return True

    def _adapt(self, records):
        """Times as many cycles as TIMED_SHARE allows by what those that were just written took."""
        times = [ms for record in records for ms in record["event_ms"]["total"]]
        if times and sum(times) > 0:
            stride = max(1, math.ceil(TIMED_MS / TIMED_SHARE * len(times) / sum(times)))
            if stride != self._stride:
                self._stride, self._place, self._rest = stride, 0, 0

    def _interrupt(self, before, after=None):
        """Something else than decode follows the last cycle, so its `other` and `total` mean nothing."""
        last, self._last = self._last, None
        if last is not None:
            last.reason = last.reason or before
        self._after = after or self._after

    def _gather(self, cycle):
        """Reads the cycles that have gathered, in `cycle`, if the last one that it takes is over and counted."""
        last = self._ring[(self._due - 1) % RING]
        if (last.reason is not None or last.ended()) and last.counted():
            self._harvest()
            cycle.reason = cycle.reason or "write"

    def _harvest(self, room=0):
        """Accounts for the cycles that are over and counted, oldest first; for others too until `room` slots are free."""
        over = next((n for n in range(self._next, self._first, -1) if self._ring[(n - 1) % RING].ended()), self._first)
        while self._first < self._next:
            cycle = self._ring[self._first % RING]
            known = self._first < over or cycle.reason is not None
            if not (known and cycle.counted()):
                if self._next - self._first <= RING - room:
                    break
                cycle.reason = cycle.reason if known else "ring"
            self._account(cycle)
        self._due = self._first + min(self._every - self._unwritten, GATHER)

    def _account(self, cycle):
        self._first += 1
        key = cycle.steps, cycle.size
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = Block(*key)
        block.add(cycle)
        cycle.clear()
        self._unwritten += 1
        if self._unwritten >= self._every:
            self._write()

    def _write(self):
        """Writes every block. All is on disk when this returns, so a killed server loses at most the next interval."""
        records = [self._record("block", block.record()) for block in self._blocks.values() if block.cycles]
        if not records:
            return
        if self._adapts:
            self._adapt(records)
        records[0]["skipped"] = self._skipped
        self._append(records)
        most = max(records, key=lambda record: record["cycles"])
        if most["cycles"] and most["rank"] == 0:
            self._out(_text(most))
        self._skipped = self._unwritten = 0

    def _record(self, kind, content):
        record = {"kind": kind, "schema": SCHEMA}
        record.update(self._identity, time=round(self._now(), 3), every=self._every, sync=self._sync)
        record.update(content)
        return record

    def _append(self, records):
        if self._path:
            left = "".join(map(_line, records)).encode()
            # open() takes three times as long.
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                while left:
                    left = left[os.write(file, left) :]
            finally:
                os.close(file)

    def _turn_off(self, error):
        global probe
        if probe is self:
            probe = self._chooser
        self._ring, self._open, self._last = [], None, None  # lets the events and a held result go
        self._unread.clear()
        # The worker holds this probe until its pass ends.
        self.enter = self.begin = self.mark = self.end = self.verified = _nothing
        if self._chooser is not None:
            self.begin = self._chooser.begin
        try:
            self._out("EAGLE3_PROF probe off: %s: %s" % (type(error).__name__, error))
        except Exception:
            return


def _nothing(*_args, **_kwargs):
    pass


def _read(rid):
    """The steps that a request id asks for (None: none) and whether the request is measured."""
    steps, measured, later = RID.match(str(rid)).groups()
    steps = steps or later
    return None if steps is None else int(steps), measured != "0"


def _by_phase(columns):
    return {phase: columns[i] for i, phase in enumerate(PHASES)}


def _line(record):
    """The record as a line of JSON. Its times are most of it: one format for all of them is several times as fast."""
    times = [record[key][phase] for key in CLOCKS if key in record for phase in PHASES]
    line = ENCODE({key: value for key, value in record.items() if key not in CLOCKS})
    if times:
        column = "[" + ("%.4f," * len(times[0]))[:-1] + "]"
        clock = "{" + ",".join(['"%s":%s' % (phase, column) for phase in PHASES]) + "}"
        values = itertools.chain.from_iterable(times)
        line = line[:-1] + ("," + ",".join(['"%s":%s' % (key, clock) for key in CLOCKS]) + "}") % tuple(values)
    return line + "\n"


def _text(block):
    """The block for the log; means over the kept cycles, accept length over all."""
    gpu, host = ({phase: sum(block[key][phase]) / block["cycles"] for phase in PHASES} for key in CLOCKS)
    how = ", SYNCHRONISED AT EVERY MARK, the server is slower" if block["sync"] else ""
    head = "EAGLE3_PROF (%d cycles, %d timed, steps=%d, bs=%d, rank %d, gpu time by cuda events%s, host timers in brackets)"
    counts = (block[key] for key in ("decode_cycles", "cycles", "steps", "batch_size", "rank"))
    rows = [head % (*counts, how)]
    for phase, title in TITLES.items():
        share = 100 * gpu[phase] / gpu["total"] if gpu["total"] else 0.0
        rows.append("  %-16s%9.3f ms (%5.1f%%)  [host %.3g]" % (title, gpu[phase], share, host[phase]))
    rows.append("  %-16s%9.3f ms" % ("TOTAL:", gpu["total"]))
    known = block["decode_cycles"] - block["unknown"]
    if known and gpu["total"]:
        tokens = block["tokens"] / known
        length = tokens / block["batch_size"]
        rows.append("  %-16s%8.2f tokens per verify, bonus token included" % ("Accept len:", length))
        rows.append("  %-16s%8.1f" % ("Eff tok/s:", tokens / gpu["total"] * 1e3))
    else:
        rows.append("  Accept len:      unknown (this worker keeps no count on the CPU)")
    return "\n".join(rows)


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
    """What EAGLE3_PROFILE and EAGLE3_STEPS_FROM_RID ask for: a probe, a chooser alone, or None where both are unset or 0."""
    chooser = StepChooser() if environ.get("EAGLE3_STEPS_FROM_RID", "") not in ("", "0") else None
    if environ.get("EAGLE3_PROFILE", "") in ("", "0"):
        return chooser
    try:
        return Probe(
            every=max(1, int(environ.get("EAGLE3_PROFILE_EVERY") or 100)),
            warmup=int(environ.get("EAGLE3_PROFILE_WARMUP") or 10),
            sync=environ.get("EAGLE3_PROFILE_SYNC", "") not in ("", "0"),
            directory=environ.get("EAGLE3_PROFILE_DIR") or None,
            chooser=chooser,
            timed=max(0, int(environ.get("EAGLE3_PROFILE_TIMED") or 0)) or None,
        )
    except ValueError as error:
        _log("EAGLE3_PROF probe off: %s" % error)
        return chooser


probe = from_environment(os.environ)
