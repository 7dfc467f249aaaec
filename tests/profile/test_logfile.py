from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest

from eaglelab.errors import InputError
from eaglelab.profile.decode_groups import KEPT_LINES
from eaglelab.profile.log_report import KEPT_BLOCKS
from eaglelab.profile.logfile import read_log
from eaglelab.profile.server_args import parse_server_args, parse_version

CASES = Path(__file__).parents[1] / "cases" / "profile"


def decode(second, *, running=1, throughput=90.0, accept="1.80"):
    return (
        f"[2026-11-29 10:{second // 60:02d}:{second % 60:02d}] Decode batch, #running-req: {running}, "
        f"accept len: {accept}, cuda graph: True, gen throughput (token/s): {throughput:.2f}, #queue-req: 0\n"
    )


def test_the_old_block_is_read_from_a_file_as_printed_and_corrected():
    report = read_log(CASES / "old-block.log").to_json()
    (block,) = report["blocks"]
    assert block["source"] == "hand-made"
    assert (block["printed"]["accept_length"], block["printed"]["tok_s"]) == (0.98, 31.0)
    assert (block["corrected"]["accept_length"], block["corrected"]["tok_s"]) == (1.98, 62.4)
    assert json.loads(json.dumps(report)) == report


def test_a_server_log_gives_decode_figures_per_number_of_running_requests():
    report = read_log(CASES / "server.log")
    one, two = report.decode
    assert (report.decode_lines, report.decode_after_idle) == (6, 2)
    assert (one.running_requests, one.lines, one.eager) == (1, 3, 0)
    assert one.throughput.mean == pytest.approx(94)
    assert one.throughput.median == pytest.approx(94)
    assert one.accept_length.mean == pytest.approx(1.8)
    assert (two.running_requests, two.lines, two.eager) == (2, 1, 1)
    assert two.throughput.mean == 120


def test_a_server_log_names_release_probe_and_start_without_secrets():
    report = read_log(CASES / "server.log")
    assert report.sglang == "0.5.9"
    assert [canary.worker for canary in report.canaries] == ["EAGLEWorker"]
    (args,) = report.server_starts
    assert args["speculative_num_steps"] == "2"
    assert args["speculative_draft_model_path"] == "/models/draft"
    assert args["model_path"] == "/models/target"
    assert "do-not-show" not in json.dumps(report.to_json())


def test_lines_without_speculation_have_throughput_but_no_accept_length():
    line = "[2026-11-29 10:00:0{}] Decode batch, #running-req: 1, gen throughput (token/s): 89.00, #queue-req: 0"
    (group,) = read_log(line.format(second) for second in range(3)).decode
    assert group.accept_length is None
    assert group.throughput.count == 2


def test_a_long_gap_between_decode_lines_means_idle_even_without_prefill_lines():
    report = read_log([decode(0), decode(1), decode(2), decode(60, throughput=1.2), decode(61)])
    assert report.decode_after_idle == 2
    assert report.decode[0].throughput.mean == 90


def test_each_data_parallel_rank_has_its_own_first_line():
    lines = [decode(0), decode(0), decode(1), decode(1)]
    tagged = [line.replace("]", f" DP{rank} TP0]", 1) for line, rank in zip(lines, (0, 1, 0, 1), strict=True)]
    report = read_log(tagged)
    assert report.decode_after_idle == 2
    assert report.decode[0].lines == 2


def test_two_server_starts_in_one_log_are_kept_apart():
    start = "server_args=ServerArgs(model_path='/m', speculative_num_steps={})"
    first = [start.format(2), decode(0), decode(1, throughput=94)]
    second = [start.format(10), decode(2), decode(3, throughput=60)]
    report = read_log([*first, *second])
    assert [(group.start, group.throughput.mean) for group in report.decode] == [(1, 94), (2, 60)]
    assert [args["speculative_num_steps"] for args in report.server_starts] == ["2", "10"]


def test_the_probes_json_lines_in_a_log_become_a_profile():
    report = read_log(CASES / "rank0.jsonl")
    assert report.profile.settings[0].cycles == 4
    assert report.to_json()["profile"]["settings"][0]["steps"] == 2


def test_json_lines_of_which_none_is_a_record_are_told():
    report = read_log(['{"kind":"block","schema":9}\n'])
    assert report.profile is None
    assert report.problems == ("line 1: schema 9 is not known; this version reads schema 1",)


def test_gzip_is_known_by_its_first_bytes_and_not_by_its_name(tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes(gzip.compress((CASES / "server.log").read_bytes()))
    assert read_log(str(path)).to_json() == read_log(CASES / "server.log").to_json()


def test_a_gzip_file_that_is_cut_short_is_read_as_far_as_it_goes(tmp_path):
    path = tmp_path / "log.gz"
    whole = gzip.compress(b"".join(decode(second).encode() for second in range(59)))
    path.write_bytes(whole[:-12])
    report = read_log(path)
    assert "damaged or cut short" in report.problems[0]
    assert report.lines > 0


def test_bytes_that_are_no_utf8_do_not_stop_the_reader():
    report = read_log([b"\xff\xfe\x00 noise \x80\n", *(decode(s).encode() + b"\xff" for s in range(2))])
    assert report.lines == 3
    assert report.decode_lines == 2


def test_a_log_that_names_a_simulated_gpu_labels_all_that_comes_of_it():
    report = read_log(["[2026] device 0: simulated GPU, 80 GB\n", *(CASES / "rank0.jsonl").read_text().splitlines()])
    assert report.simulated == report.profile.simulated == "simulated GPU"
    assert read_log(CASES / "server.log").simulated is None


def test_a_probe_that_turned_itself_off_is_told_with_its_reason():
    report = read_log(["noise\n", "[TP0] EAGLE3_PROF probe off: OSError: disk full\n"])
    assert report.problems == ("line 2: EAGLE3_PROF probe off: OSError: disk full",)


def test_an_empty_log_says_that_it_has_nothing():
    assert read_log([]).empty
    assert not read_log(CASES / "old-block.log").empty


def test_a_missing_file_is_bad_input_with_a_hint(tmp_path):
    with pytest.raises(InputError, match="cannot be read") as caught:
        read_log(tmp_path / "no.log")
    assert caught.value.hint == "give the path of a server log"
    assert caught.value.where == str(tmp_path / "no.log")


def test_a_folder_is_bad_input(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_log(tmp_path)


def test_memory_does_not_grow_with_the_log():
    block = (CASES / "old-block.log").read_text().splitlines()

    def lines(count):
        for number in range(count):
            yield "x" * 100
            if number % 400 == 0:
                yield from block

    tracemalloc.start()
    read_log(lines(2_000))
    _, small = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    read_log(lines(20_000))
    _, large = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert large < small + 300_000


def test_of_very_many_lines_and_blocks_the_newest_are_kept_and_all_are_counted():
    report = read_log(["EAGLE3_PROF (1 cycles)"] * (KEPT_BLOCKS + 2))
    assert (report.block_count, len(report.blocks), report.blocks[0].text.line) == (KEPT_BLOCKS + 2, KEPT_BLOCKS, 3)
    report = read_log("Decode batch, #running-req: 1, gen throughput (token/s): 1.0" for _ in range(KEPT_LINES + 3))
    assert (report.decode[0].lines, report.decode[0].throughput.count) == (KEPT_LINES + 2, KEPT_LINES)


def test_server_args_are_read_in_both_of_their_forms():
    call = "[2026] server_args=ServerArgs(model_path='/m, x', tp_size=8, api_key='s', speculative_num_steps=None)"
    mapping = "[2026] server_args={'model_path': '/m, x', 'tp_size': 8, 'api_key': 's', 'speculative_num_steps': None}"
    expected = {"model_path": "/m, x", "tp_size": "8", "speculative_num_steps": "None"}
    assert parse_server_args(call) == parse_server_args(mapping) == expected
    assert parse_server_args("tp_size=8") is None


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("sglang==0.5.9", "0.5.9"),
        ("sglang[all]==0.4.6.post5", "0.4.6.post5"),
        ("SGLang v0.5.12.", "0.5.12"),
        ("sglang", None),
    ],
)
def test_the_release_is_read_where_a_line_names_it(line, version):
    assert parse_version(line) == version
