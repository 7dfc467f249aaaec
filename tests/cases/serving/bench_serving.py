"""Stands in for `sglang.bench_serving` on a host without aiohttp, transformers and a tokenizer.

It knows the flags that every release since 0.5.7 has, and no abbreviation of them; sends real requests; and writes a row
with the names of the release whose recorded row lies in the file that STANDIN_ROW names.
"""

import argparse
import json
import os
import statistics
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--backend", choices=["sglang"], required=True)
parser.add_argument("--host", required=True)
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--model", required=True)
parser.add_argument("--tokenizer")
parser.add_argument("--num-prompts", type=int, required=True)
parser.add_argument("--max-concurrency", type=int, required=True)
parser.add_argument("--seed", type=int, required=True)
parser.add_argument("--dataset-name", choices=["custom", "random"], required=True)
parser.add_argument("--dataset-path", default="")
parser.add_argument("--sharegpt-output-len", type=int)
parser.add_argument("--random-input-len", type=int, default=1024)
parser.add_argument("--random-output-len", type=int, default=1024)
parser.add_argument("--random-range-ratio", type=float, default=0.0)
parser.add_argument("--request-rate", type=float, default=float("inf"))
parser.add_argument("--warmup-requests", type=int, default=1)
parser.add_argument("--flush-cache", action="store_true")
parser.add_argument("--disable-tqdm", action="store_true")
parser.add_argument("--output-file", required=True)


def prompts(args):
    if args.dataset_name == "random":
        return [{"input_ids": [1] * args.random_input_len}] * args.num_prompts, args.random_output_len
    with open(args.dataset_path) as file:
        turns = [json.loads(line)["conversations"] for line in file]
    assert all(len(each) >= 2 for each in turns)
    return [{"text": each[0]["value"]} for each in turns][: args.num_prompts], args.sharegpt_output_len


def post(args, path, body=None):
    key = os.environ.get("OPENAI_API_KEY")
    headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + key} if key else {})}
    data = json.dumps(body).encode() if body is not None else b""
    request = urllib.request.Request("http://%s:%d%s" % (args.host, args.port, path), data, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def main(args):
    bodies, tokens = prompts(args)
    sampling = {"temperature": 0.0, "max_new_tokens": tokens, "ignore_eos": True}
    lock, times, counts = threading.Lock(), [], []

    def send(body):
        began = time.monotonic()
        answer = json.loads(post(args, "/generate", {**body, "sampling_params": sampling}))
        with lock:
            times.append(time.monotonic() - began)
            counts.append(answer["meta_info"]["completion_tokens"])

    for _ in range(args.warmup_requests):
        send(bodies[0])
    times.clear()
    counts.clear()
    if args.flush_cache:
        post(args, "/flush_cache")
    began = time.monotonic()
    with ThreadPoolExecutor(args.max_concurrency) as pool:
        list(pool.map(send, bodies))
    duration = time.monotonic() - began
    with open(os.environ["STANDIN_ROW"]) as file:
        row = json.loads(file.readline())
    row.update(
        max_concurrency=args.max_concurrency,
        dataset_name=args.dataset_name,
        duration=duration,
        completed=len(times),
        total_output_tokens=sum(counts),
        request_throughput=len(times) / duration,
        output_throughput=sum(counts) / duration,
        mean_e2e_latency_ms=1000 * statistics.mean(times),
    )
    with open(args.output_file, "a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    print("stand-in for bench_serving:", " ".join(sys.argv[1:]), flush=True)
    main(parser.parse_args())
