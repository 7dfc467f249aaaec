"""Log lines as the releases print them (wording of 0.4.3, 0.5.9, 0.5.12, 0.5.16 and 0.5.23)."""

from __future__ import annotations

import pytest

from eaglelab.server.loading import LoadLog

OLD = "[2025-02-10 10:00:00 TP0] "
NEW = "[2026-11-29 18:20:48] "


def read(*lines: str) -> LoadLog:
    log = LoadLog()
    log.feed("".join(f"{line}\n" for line in lines).encode())
    return log


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        (NEW + "Init torch distributed begin.", "joining the GPUs"),
        (OLD + "Load weight begin. avail mem=78.58 GB", "loading weights"),
        (NEW + "Load weight end. elapsed=1.89 s, type=LlamaForCausalLM, avail mem=46.25 GB", "setting up memory"),
        (OLD + "Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63 GB", "setting up memory"),
        (OLD + "Capture cuda graph begin. This can take up to several minutes.", "capturing CUDA graphs"),
        (
            NEW + "Capture cuda graph begin. This can take up to several minutes. avail mem=22.25 GB",
            "capturing CUDA graphs",
        ),
        (NEW + "Capture piecewise CUDA graph begin. avail mem=22.25 GB", "capturing CUDA graphs"),
        (NEW + "Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=3", "capturing CUDA graphs"),
        (NEW + "Capture target prefill CUDA graph begin. backend=full, num_tokens=[4]", "capturing CUDA graphs"),
        (OLD + "Capture draft cuda graph begin. This can take up to several minutes.", "capturing draft graphs"),
        (NEW + "Capture draft decode CUDA graph begin. backend=full, num_tokens_per_req=1", "capturing draft graphs"),
        (NEW + "Capture draft prefill CUDA graph begin. backend=full", "capturing draft graphs"),
        (NEW + "Capture Frozen-KV MTP draft cuda graph begin.", "capturing draft graphs"),
        (NEW + "Capture draft extend cuda graph begin. This can take", "capturing draft-extend graphs"),
        (NEW + "Capture draft extend CUDA graph begin. step=1, backend=full", "capturing draft-extend graphs"),
        (
            NEW + "Built adaptive runtime state steps=3: elapsed=2.10s, mem=0.40GB",
            "building a state for each step count",
        ),
        (NEW + "max_total_num_tokens=386432, chunked_prefill_size=8192, max_running_requests=48", "starting to serve"),
        ("INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)", "warming up"),
        (NEW + "The server is fired up and ready to roll!", "ready"),
    ],
)
def test_a_line_tells_the_phase(line: str, phase: str) -> None:
    assert read("nothing of note", line, "nothing of note").phase == phase


def test_before_any_known_line_the_server_is_starting() -> None:
    assert (
        read("[2026-11-29 18:20:48] server_args=ServerArgs(model_path='/m', max_total_tokens=None)").phase == "starting"
    )


def test_the_draft_model_is_loaded_after_the_target_and_shown_so() -> None:
    log = read("Load weight begin.", "Load weight end.", "Capture cuda graph begin.", "Load weight begin.")
    assert log.phase == "loading weights"


@pytest.mark.parametrize(
    "bar",
    [
        "Loading safetensors checkpoint shards:  25% Completed | 16/64 [00:31<01:33,  1.95s/it]",
        "Multi-thread loading shards:  25% Completed | 16/64 [00:31<01:33,  1.95s/it]",
        "Loading pt checkpoint shards:  25% Completed | 16/64 [00:31<01:33,  1.95s/it]",
        "Loading safetensors using Fastsafetensor loader:  25%|##5       | 16/64 [00:31<01:33, 1.95s/it]",
        "\x1b[32mLoading safetensors checkpoint shards\x1b[0m:  25% Completed | 16/64 [00:31<01:33]",
    ],
)
def test_shards_are_read_from_every_progress_bar(bar: str) -> None:
    assert read("Load weight begin.", bar).shards == (16, 64)


def test_a_bar_that_redraws_itself_is_read_before_its_line_ends() -> None:
    log = LoadLog()
    log.feed(b"Load weight begin.\n\rLoading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?]")
    log.feed(b"\rLoading safetensors checkpoint shards:  50% Completed | 2/4 [00:02<00:02]")
    assert log.shards == (2, 4)


def test_of_a_bar_that_redraws_itself_only_the_last_state_is_kept_among_the_last_lines() -> None:
    log = LoadLog()
    log.feed(b"before\n" + b"".join(b"\rshards: %d%%|#| %d/100 [00:01]" % (n, n) for n in range(101)) + b"\nafter\r\n")
    assert list(log.last) == ["before", "shards: 100%|#| 100/100 [00:01]", "after"]


def test_the_shards_of_the_target_are_not_shown_for_the_draft() -> None:
    log = read("Load weight begin.", "shards: 100% Completed | 4/4 [00:01]", "Load weight end.", "Load weight begin.")
    assert log.shards is None


def test_a_line_split_anywhere_is_read_whole() -> None:
    text = "[x] Capture draft cuda graph begin\nScheduler hit an exception: Traceback\nValueError: \u00e4\n".encode()
    for cut in range(len(text)):
        log = LoadLog()
        log.feed(text[:cut])
        log.feed(text[cut:])
        assert log.phase == "capturing draft graphs"
        assert log.death is not None
        assert log.death.line == "ValueError: \u00e4"


def test_colours_are_dropped() -> None:
    assert list(read("\x1b[1;31mERROR\x1b[0m: x").last) == ["ERROR: x"]


def test_bytes_that_are_no_text_do_not_stop_the_reading() -> None:
    log = LoadLog()
    log.feed(b"\xff\xfe\x00\nLoad weight begin\n")
    assert log.phase == "loading weights"


def test_only_the_last_lines_are_kept() -> None:
    log = read(*(f"line {number}" for number in range(100)))
    assert len(log.last) == 30
    assert log.last[-1] == "line 99"


def test_a_last_line_without_its_newline_counts_once_the_log_is_closed() -> None:
    log = LoadLog()
    log.feed(b"RuntimeError: CUDA out of memory")
    assert log.death is None
    log.close()
    assert log.death is not None


CAUSES = [
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "ran out of memory",
        "mem-fraction-static",
    ),
    (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. self.server_args=...",
        "not enough GPU memory for the KV cache",
        "raise mem-fraction-static",
    ),
    ("Exception: Capture cuda graph failed: invalid argument", "could not be captured", "cuda-graph-max-bs"),
    ("RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)", "does not take", "NCCL_ALGO"),
    ("Exception: Capture prefill CUDA graph failed: invalid argument", "could not be captured", "cuda-graph-max-bs"),
    (
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use",
        "the port is taken",
        "server.port",
    ),
    (
        "AssertionError: shared logits buffer holds 32 rows but caller needs 48 (vocab_size=32768)",
        "graphs for several step counts have no room",
        "server.speculative.num_steps",
    ),
    ("launch_server.py: error: unrecognized arguments: --nope", "does not take this command line", "server.flags"),
    ("ModuleNotFoundError: No module named 'sgl_kernel'", "a Python package is missing", "install it"),
    ("ImportError: cannot import name 'x' from 'y'", "a Python package is missing", "install it"),
]


@pytest.mark.parametrize(("line", "what", "hint"), CAUSES)
def test_a_known_cause_of_death_has_words_and_a_hint(line: str, what: str, hint: str) -> None:
    death = read("before", line, "after").death
    assert death is not None
    assert what in death.what
    assert death.line == line
    assert hint in death.hint


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (NEW + "Scheduler hit an exception: Traceback (most recent call last):", "a process of the server failed"),
        (
            NEW + "DetokenizerManager hit an exception: Traceback (most recent call last):",
            "a process of the server failed",
        ),
        (NEW + "TokenizerManager hit an exception: Traceback", "a process of the server failed"),
        (
            OLD + "Received sigquit from a child proces. It usually means the child failed.",
            "a process of the server failed",
        ),
        (
            NEW + "Received sigquit from a child process. It usually means the child failed.",
            "a process of the server failed",
        ),
        (
            NEW + "SIGQUIT received. signum=3, frame=None. It usually means one child failed.",
            "a process of the server failed",
        ),
        (NEW + "Rank 0 scheduler is dead. Please check if there are relevant logs.", "failed while it started"),
        ("RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If", "failed while it started"),
        (NEW + "Initialization failed. warmup error: Traceback (most recent call last):", "warm-up failed"),
        ("RuntimeError: Initialization failed. Please see the error messages above.", "failed while it started"),
        (NEW + "Subprocess scheduler_0 (pid=12) crashed with exit code -11. Triggering SIGQUIT", "crashed"),
        (NEW + "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", "watchdog fired"),
        (OLD + "Watchdog timeout (self.watchdog_timeout=300)", "watchdog fired"),
    ],
)
def test_a_line_that_says_a_part_died_is_a_sign_of_death(line: str, what: str) -> None:
    log = read("before", line, "after")
    assert log.failing
    assert log.death is not None
    assert what in log.death.what


@pytest.mark.parametrize(
    "line",
    [
        "ModuleNotFoundError: No module named 'optional_thing'",
        "W: Ignore import error when loading sglang.srt.models.x: No module named 'y'",
        NEW + "Scheduler watchdog timeout (self.watchdog_timeout=30, self.soft=True)",
        NEW + "KV cache pool is full. Retract requests. #retracted_reqs: 1",
        "INFO:     Started server process [12]",
        "torch.OutOfMemoryError: CUDA out of memory, retrying with a smaller workspace",
    ],
)
def test_a_harmless_line_does_not_make_a_server_a_dying_one(line: str) -> None:
    assert not read(line).failing


def test_the_cause_is_named_and_not_what_followed_from_it() -> None:
    log = read(
        NEW + "Scheduler hit an exception: Traceback (most recent call last):",
        '  File "model_runner.py", line 1, in f',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.",
        NEW + "Received sigquit from a child process. It usually means the child failed.",
        "EOFError",
    )
    assert log.death is not None
    assert log.death.what == "the GPU ran out of memory"
    assert log.death.line.startswith("torch.OutOfMemoryError")


def test_memory_that_ran_out_during_a_capture_is_the_cause_and_the_capture_is_not() -> None:
    log = read("Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert log.death is not None
    assert log.death.what == "the GPU ran out of memory"


def test_a_capture_that_failed_of_something_known_is_not_the_cause() -> None:
    log = read("Exception: Capture cuda graph failed: shared logits buffer holds 32 rows but caller needs 48")
    assert log.death is not None
    assert log.death.what == "its graphs for several step counts have no room"


def test_the_line_of_a_cause_is_not_the_source_in_a_traceback_that_holds_its_words() -> None:
    source = '    raise ValueError("Not enough memory. Please try to increase --mem-fraction-static.")'
    assert read(NEW + "harmless", '  File "scheduler.py", line 1, in f', source).death is None
    log = read(source, "ValueError: Not enough memory. Please try to increase --mem-fraction-static.")
    assert log.death is not None
    assert log.death.line.startswith("ValueError: ")
    aborted = read(
        "terminate called after throwing an instance of 'c10::Error'", "  what():  NCCL error: invalid usage"
    )
    assert aborted.death is not None
    assert aborted.death.what == "NCCL does not take what it was told"


def test_nccl_that_failed_during_a_capture_is_the_cause_and_not_memory_as_the_log_goes_on_to_say() -> None:
    log = read(
        NEW + "Scheduler hit an exception: Traceback (most recent call last):",
        "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
        "Exception: Capture cuda graph failed: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
        "Possible solutions:",
        "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
        "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)",
    )
    assert log.death is not None
    assert log.death.what == "NCCL does not take what it was told"
    assert "mem-fraction" not in log.death.hint


def test_the_exception_of_the_first_process_that_failed_is_named_and_not_those_of_the_others() -> None:
    log = read(
        NEW + "Scheduler hit an exception: Traceback (most recent call last):",
        "ValueError: layer ids [2, 30, 58] do not fit",
        NEW + "Scheduler hit an exception: Traceback (most recent call last):",
        "torch.distributed.DistBackendError: NCCL error: remote process exited",
        NEW + "Rank 0 scheduler is dead. Please check if there are relevant logs.",
        "EOFError",
    )
    assert log.death is not None
    assert log.death.line == "ValueError: layer ids [2, 30, 58] do not fit"


def test_a_child_that_fails_before_it_can_log_is_the_cause_and_not_the_end_of_file_after_it() -> None:
    log = read(
        "Process Process-1:",
        "Traceback (most recent call last):",
        "AttributeError: module 'torch' has no attribute 'x'",
        NEW + "Rank 0 scheduler is dead. Please check if there are relevant logs.",
        "Traceback (most recent call last):",
        "EOFError",
    )
    assert log.death is not None
    assert log.death.line.startswith("AttributeError")


def test_a_harmless_error_long_before_is_not_blamed() -> None:
    log = read(
        "ImportError: no optional kernels",
        *(f"line {number}" for number in range(40)),
        NEW + "Subprocess scheduler_0 (pid=12) crashed with exit code -11. Triggering SIGQUIT",
    )
    assert log.death is not None
    assert "exit code -11" in log.death.line


def test_a_harmless_error_long_ago_does_not_explain_a_server_that_just_ended() -> None:
    assert read("ImportError: no optional kernels", *(f"line {number}" for number in range(40))).death is None
