from __future__ import annotations

import os
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest

BLOCK = """\
EAGLE3_PROF (4 cycles, 4 timed, steps=2, bs=1, rank 0, gpu time by cuda events, host timers in brackets)
  Draft steps:        0.500 ms (  2.7%)  [host 0.1]
  Target verify:     15.800 ms ( 85.1%)  [host 16.2]
  Draft re-extend:    1.260 ms (  6.8%)  [host 0.1]
  Other overhead:     1.000 ms (  5.4%)  [host 2.16]
  TOTAL:             18.560 ms
  Accept len:         1.75 tokens per verify, bonus token included
  Eff tok/s:          94.3"""


def test_the_block_for_the_log_reads_like_this(machine):
    m = machine(every=4)
    for correct in (0, 1, 1, 1, 0, 0):
        m.cycle([correct])
    assert m.log[1] == BLOCK


def test_the_canary_is_said_once_and_first(machine, module):
    m = machine()
    m.prefill()
    assert m.log == []
    m.cycle()
    m.cycle()
    assert m.log == [
        f"EAGLE3_PROF probe {module.VERSION} active: class=EAGLEWorker rank=0/1 sglang=unknown clock=cuda-events"
    ]


def test_the_canary_names_the_installed_sglang(machine, monkeypatch):
    monkeypatch.setitem(sys.modules, "sglang", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "sglang.version", SimpleNamespace(__version__="0.5.9"))
    m = machine()
    m.cycle()
    assert "sglang=0.5.9 " in m.log[0]


def test_every_rank_writes_its_own_file_and_rank_zero_alone_prints(machine, tmp_path, records):
    m = machine(every=2)
    m.torch.distributed.is_initialized = lambda: True
    m.torch.distributed.get_rank = lambda: 3
    m.torch.distributed.get_world_size = lambda: 4
    for _ in range(4):
        m.cycle()
    assert [path.name for path in (tmp_path / "records").iterdir()] == [f"rank3.{os.getpid()}.jsonl"]
    assert "rank=3/4" in m.log[0]
    assert len(m.log) == 1
    (start,) = records("start")
    assert (start["rank"], start["world"], start["pid"], start["class"]) == (3, 4, os.getpid(), "EAGLEWorker")
    assert start["time"] == 1_800_000_100.0


def test_a_killed_server_loses_at_most_the_last_block(machine, records):
    m = machine(every=2)
    for number in range(1, 9):
        m.cycle()
        # What is on disk now is what a kill would leave.
        assert sum(block["decode_cycles"] for block in records()) >= number - 4


def test_every_record_says_who_wrote_it_and_how(machine, module, records):
    m = machine(every=2, sync=True)
    m.worker = type("MultiLayerEagleWorkerV2", (), {})()
    for _ in range(4):
        m.cycle()
    for record in [*records("start"), *records()]:
        assert record["schema"] == 1
        assert (record["probe"], record["sglang"]) == (module.VERSION, "unknown")
        assert record["class"] == "MultiLayerEagleWorkerV2"
        assert (record["rank"], record["world"], record["pid"]) == (0, 1, os.getpid())
        assert (record["every"], record["sync"]) == (2, True)


def test_sync_is_said_in_the_canary_and_in_every_block(machine):
    m = machine(every=2, sync=True)
    for _ in range(6):
        m.cycle()
    assert len(m.log) == 3
    for text in m.log:
        assert "SYNCHRONISED AT EVERY MARK, the server is slower" in text.splitlines()[0]


def test_of_several_keys_in_an_interval_the_log_shows_the_one_with_most_cycles(machine, records):
    m = machine(every=10)
    for size in (1, 1, 1, 2, 2, 2, 2, 2, 2, 1, 1, 1):
        m.cycle([1] * size)
    assert [block["batch_size"] for block in records()] == [1, 2]
    assert ["bs=2" in text for text in m.log[1:]] == [True]


def test_nothing_grows_over_many_cycles(machine, module, overlap):
    m = machine()
    scheduler = overlap(m)

    def run(cycles):
        for number in range(cycles):
            scheduler.cycle([number % 3] * (1 + number % 5), steps=1 + number % 2)
            m.log.clear()
        return len(list(Path("/proc/self/fd").iterdir()))

    files = run(1000)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    assert run(3000) == files
    assert m.events == 4000 + 4 * module.RING  # one a cycle is the scheduler's own, for its copy
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 20_000


def test_without_a_folder_only_text_comes_out(machine, tmp_path):
    m = machine(every=2, directory=None)
    for _ in range(4):
        m.cycle()
    assert len(m.log) == 2
    assert not (tmp_path / "records").exists()


def test_a_block_without_timed_cycles_is_recorded_and_not_printed(machine, records):
    m = machine(warmup=10)
    for _ in range(3):
        m.cycle()
    m.flush()
    assert records()[0]["cycles"] == 0
    assert len(m.log) == 1


def test_an_error_in_the_probe_switches_it_off_and_says_so_once(machine, module):
    m = machine()
    for _ in range(3):
        m.cycle()
    m.worker = SimpleNamespace(server_args=SimpleNamespace())
    local = module.probe
    local.enter()
    local.begin(m.worker, m.batch(1))
    local.mark(1)
    local.mark(2)
    local.mark(3)
    local.end([1])
    assert module.probe is None
    (said,) = m.log[1:]
    assert said.startswith("EAGLE3_PROF probe off: AttributeError: ")
    assert "speculative_num_steps" in said


def test_a_log_that_cannot_be_written_switches_the_probe_off_quietly(machine, module):
    m = machine()

    def closed(_text):
        raise OSError("closed")

    m.probe._out = closed
    m.cycle()
    assert module.probe is None


def test_a_folder_that_cannot_be_written_switches_the_probe_off(machine, module, tmp_path):
    (tmp_path / "file").write_text("")
    m = machine(directory=str(tmp_path / "file"))
    m.cycle()
    assert module.probe is None
    assert "probe off" in m.log[-1]


@pytest.mark.parametrize("environ", [{}, {"EAGLE3_PROFILE": "0"}, {"EAGLE3_PROFILE": ""}])
def test_switched_off_there_is_no_probe(module, environ):
    assert module.from_environment(environ) is None
    assert module.probe is None


def test_the_environment_sets_the_probe(module, machine, tmp_path):
    environ = {
        "EAGLE3_PROFILE": "1",
        "EAGLE3_PROFILE_EVERY": "7",
        "EAGLE3_PROFILE_WARMUP": "3",
        "EAGLE3_PROFILE_SYNC": "1",
        "EAGLE3_PROFILE_DIR": str(tmp_path),
    }
    probe = module.from_environment(environ)
    settings = (probe._every, probe._warmup, probe._sync, probe._directory)
    assert settings == (7, 3, True, str(tmp_path))


@pytest.mark.parametrize(
    ("text", "stride", "adapts"), [("", 1, True), ("0", 1, True), ("1", 1, False), ("6", 6, False)]
)
def test_the_environment_says_how_many_cycles_are_timed(module, text, stride, adapts):
    probe = module.from_environment({"EAGLE3_PROFILE": "1", "EAGLE3_PROFILE_TIMED": text})
    assert (probe._stride, probe._adapts) == (stride, adapts)


@pytest.mark.parametrize("name", ["EVERY", "WARMUP", "TIMED"])
def test_a_setting_that_is_no_number_leaves_the_probe_off_and_is_named(module, capsys, name):
    assert module.from_environment({"EAGLE3_PROFILE": "1", f"EAGLE3_PROFILE_{name}": "often"}) is None
    assert "probe off" in capsys.readouterr().out


def test_old_workers_keep_their_steps_in_the_server_arguments(machine, records):
    m = machine(every=1)
    m.worker = SimpleNamespace(server_args=SimpleNamespace(speculative_num_steps=5), speculative_num_steps=None)
    for _ in range(3):
        m.probe.enter()
        m.probe.begin(m.worker, m.batch(1))
        for mark in (1, 2, 3):
            m.launch(1.0)
            m.probe.mark(mark)
        m.probe.end([5])
        m.idle(0.001)
    assert records()[0]["steps"] == 5


def test_a_batch_without_requests_is_sized_by_its_sequence_lengths(machine, records):
    m = machine(every=1)
    batch = m.batch(0)
    batch.reqs = None
    batch.seq_lens = SimpleNamespace(shape=(2,))
    for _ in range(3):
        m.cycle(batch=batch, output=[1, 1])
    assert records()[0]["batch_size"] == 2
