"""bench_serving: SGLang's own client, of the host's own installation, run against the server that is up."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import Field

from eaglelab.actions.base import Action, Arguments
from eaglelab.actions.drive import load_name
from eaglelab.actions.marks import identity
from eaglelab.actions.serving_client import BUILT_IN, client_failed, last_lines, load_file, run_client
from eaglelab.context import Context, Options
from eaglelab.errors import HostError, InputError
from eaglelab.profile.serving import ServingRun, ServingSet, run_from_json, serving_json
from eaglelab.profile.serving_row import ServingRow, parse_rows
from eaglelab.profile.setting_key import SettingKey
from eaglelab.server.bench_serving import (
    LEAST_OUTPUT,
    ServingLoad,
    dataset_file,
    dataset_name,
    must_send_key,
    serving_command,
)
from eaglelab.server.prompts import PROMPTS
from eaglelab.server.readiness import ServerDied
from eaglelab.server.workload import LoadOptions, choose_workload

__all__ = ["BENCH_SERVING", "BenchServingArguments", "refuse_impossible"]

Count = Annotated[int, Field(ge=1)]


class BenchServingArguments(Arguments):
    """What is sent, by bench_serving's own names. `num_prompts` is of each run; null is all of a file, else 40.

    `repeats`: runs at each concurrency. Run n has the seed `seed` + n, so that it sends the same under every setting.
    """

    concurrency: list[Count] = [1]
    repeats: Count = 3
    num_prompts: Count | None = None
    warmup: Annotated[int, Field(ge=0)] = 1
    prompts: str | None = None
    random_input_len: Count | None = None
    random_output_len: Count | None = None
    random_range_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    output_len: Annotated[int, Field(ge=LEAST_OUTPUT)] = 256
    temperature: Annotated[float, Field(ge=0)] = 0.0
    request_rate: Annotated[float, Field(gt=0)] | None = None
    seed: Annotated[int, Field(ge=0)] = 42
    flush_cache: bool = True
    folder: str = ""

    def options(self) -> LoadOptions:
        random = self.random_input_len is not None
        return LoadOptions(
            num_prompts=self.num_prompts or (None if self.prompts else len(PROMPTS)),
            prompts=self.prompts,
            random_input_len=self.random_input_len,
            random_output_len=self.random_output_len,
            random_range_ratio=self.random_range_ratio,
            output_len=None if random else self.output_len,
        )

    def load(self, concurrency: int, repeat: int, prompts: int, dataset: str | None) -> ServingLoad:
        return ServingLoad(
            num_prompts=prompts,
            concurrency=concurrency,
            seed=self.seed + repeat,
            dataset=dataset,
            output_len=self.output_len,
            random_input_len=self.random_input_len or 0,
            random_output_len=self.random_output_len or self.output_len,
            random_range_ratio=self.random_range_ratio,
            request_rate=self.request_rate,
            warmup=self.warmup,
            flush_cache=self.flush_cache,
            temperature=self.temperature,
        )


def _check(_: Options, args: BenchServingArguments) -> None:
    """What no release could send is refused before a host is contacted."""
    if len(set(args.concurrency)) < len(args.concurrency):
        raise InputError("a concurrency is named twice", where="bench_serving", hint="name each once")
    _prompts(args, "0.5.23")


def refuse_impossible(context: Context, args: BenchServingArguments) -> None:
    """Raises InputError for what the release of this host cannot send: before a load that takes minutes."""
    version = context.facts["sglang_version"]
    if context.api_key is not None:
        must_send_key(version)
    count, data = _prompts(args, version)
    _command(context, args.load(args.concurrency[0], 0, count, None if data is None else "FILE"), "ROWS")


def _prompts(args: BenchServingArguments, version: str) -> tuple[int, bytes | None]:
    """How many, and the file that holds them; None where they are random, which bench_serving makes itself."""
    workload = choose_workload(args.options(), _read, vocabulary=1 << 31)
    if args.random_input_len is not None:
        return len(workload.prompts), None
    return len(workload.prompts), dataset_file(version, workload.prompts, workload.source)


def _read(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the prompts cannot be read: {error}", where=name, hint="--prompts FILE.jsonl") from error


def _command(context: Context, load: ServingLoad, out: str) -> list[str]:
    server = context.host.server
    tokenizer = server.flags.get("tokenizer-path")
    return serving_command(
        context.facts["sglang_version"],
        load,
        python=context.host.python,
        host=context.server_address,
        port=context.port,
        model=str(server.model_path),
        tokenizer=None if tokenizer is None else str(tokenizer),
        out=out,
    )


def _run(context: Context, args: BenchServingArguments) -> dict[str, Any]:
    refuse_impossible(context, args)
    if context.found.server_info.get("skip_tokenizer_init"):
        what = "this server has no tokenizer (skip-tokenizer-init), and bench_serving counts texts only"
        raise InputError(what, where=context.host.name, hint=BUILT_IN)
    _say_patched(context)
    version = context.facts["sglang_version"]
    count, data = _prompts(args, version)
    suffix = ".jsonl" if dataset_name(version) == "custom" else ".json"
    dataset = None if data is None else context.client.call("keep", data, suffix=suffix)["path"]
    runs = []
    for concurrency in args.concurrency:
        for repeat in range(args.repeats):
            kept = _kept(context, args, concurrency, repeat) if context.resumed else None
            load = args.load(concurrency, repeat, count, dataset)
            runs.append(kept or _one_run(context, args, load, repeat))
            context.found.serving.append(runs[-1])
    label, ranked = context.simulated, args.request_rate is None
    return {"settings": serving_json(ServingSet(tuple(runs), label, version, ranked=ranked))["settings"]}


def _say_patched(context: Context) -> None:
    """Figures are comparable with published ones on released files only; this action's playbook patches none."""
    marked = [name for name, found in context.facts["files"].items() if found.get("marked")]
    if marked:
        context.say.line(
            f"  {', '.join(marked)}: patched by an earlier run (probe off, one attribute test a cycle); "
            f"{context.invoke('rollback')} puts the released file back",
            style="yellow",
        )


def _one_run(context: Context, args: BenchServingArguments, load: ServingLoad, repeat: int) -> ServingRun:
    number = args.concurrency.index(load.concurrency) * args.repeats + repeat + 1
    what = f"run {number} of {args.repeats * len(args.concurrency)}, concurrency {load.concurrency}"

    def tell(seconds: float) -> None:
        context.say.progress(f"bench_serving, {what}: {seconds:.0f} s")

    file = _file(args, load.concurrency, repeat, "load")
    asked = _asked(context, args, load.concurrency, repeat)
    base = f"{args.folder.replace('/', '-') or 'serving'}-c{load.concurrency}-r{repeat}"
    name, _ = load_name(context, base, file, {"server": identity(context.found.record), "asked": asked})
    out = load_file(context, name, "rows")
    end, output = run_client(context, name, _command(context, load, out), tell)
    context.bundle.text(_file(args, load.concurrency, repeat, "output").replace(".json", ".txt"), output)
    if end["code"] != 0 and not context.client.call("status")["alive"]:
        died = "the server died while bench_serving was at work"
        raise ServerDied(died, where=context.host.name, hint="see server.log in the bundle")
    if end["code"] != 0:
        raise client_failed(context, end, output)
    rows = _rows(context, out)
    if not rows or not rows[-1].completed:
        lacking = "an answered request" if rows else "a row"
        told = f"bench_serving ended without {lacking}: {last_lines(output)}"
        raise HostError(told, where=context.host.name, hint=BUILT_IN)
    key = SettingKey(context.found.steps, context.found.variation)
    run = ServingRun(key, load.concurrency, repeat, load.seed, load.num_prompts, rows[-1])
    context.bundle.json(_file(args, load.concurrency, repeat, "serving"), {"asked": asked, "run": run.to_json()})
    context.say.line(f"  {what}: {run.row['output_throughput']:.1f} tok/s in {end['seconds']:.0f} s")
    return run


def _rows(context: Context, path: str) -> list[ServingRow]:
    """None where it has written no file."""
    if not context.client.call("list", pattern=glob.escape(path))["paths"]:
        return []
    return parse_rows(context.client.call_bytes("read", path=path)[1].decode(), PurePosixPath(path).name)


def _file(args: BenchServingArguments, concurrency: int, repeat: int, what: str) -> str:
    return str(PurePosixPath(args.folder) / f"{what}-c{concurrency}-r{repeat}.json")


def _asked(context: Context, args: BenchServingArguments, concurrency: int, repeat: int) -> dict[str, Any]:
    """All that a run depends on: what was asked for, and the setting of the server."""
    return {
        "args": args.model_dump(exclude={"concurrency", "repeats"}),
        "concurrency": concurrency,
        "repeat": repeat,
        "fingerprint": (context.found.record or {}).get("fingerprint"),
    }


def _kept(context: Context, args: BenchServingArguments, concurrency: int, repeat: int) -> ServingRun | None:
    """What an earlier try of this run measured under the very same setting."""
    found = context.bundle.read(_file(args, concurrency, repeat, "serving"))
    asked = _asked(context, args, concurrency, repeat)
    if found is None or asked["fingerprint"] is None or found["asked"] != asked:
        return None
    context.say.line(f"  concurrency {concurrency}, repeat {repeat + 1}: measured before")
    return run_from_json(found["run"])


def _holds(context: Context, args: BenchServingArguments, _: Mapping[str, Any]) -> bool:
    runs = [_kept(context, args, count, repeat) for count in args.concurrency for repeat in range(args.repeats)]
    if any(run is None for run in runs):
        return False
    context.found.serving += [run for run in runs if run is not None]
    return True


def _preview(context: Context, args: BenchServingArguments) -> dict[str, Any]:
    refuse_impossible(context, args)
    count, data = _prompts(args, context.facts["sglang_version"])
    command = _command(context, args.load(args.concurrency[0], 0, count, None if data is None else "FILE"), "ROWS")
    context.say.line(f"  would run, {args.repeats} times at each concurrency: {' '.join(command)}")
    return {}


BENCH_SERVING = Action(
    "bench_serving",
    BenchServingArguments,
    "SGLang's own client, of the host's installation, run after run",
    _run,
    _preview,
    check=_check,
    holds=_holds,
    nodes="first",
)
