"""measure: one load's settings under load, in rounds in which they take turns, and what the probe and the log say of it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import Field

from eaglelab.actions.base import Action, Arguments
from eaglelab.actions.drive import LoadResult, drive, load_name
from eaglelab.actions.marks import identity
from eaglelab.actions.model import vocabulary_size
from eaglelab.actions.witness import Witness, begin, examined
from eaglelab.context import Context, Options
from eaglelab.errors import InputError
from eaglelab.profile.bench import BenchResult, RequestSample, summarise_bench
from eaglelab.profile.measurement_set import Measurement, MeasurementSet, from_json, to_json
from eaglelab.profile.samples import sample_of_record
from eaglelab.report.progress_view import progress_table
from eaglelab.server.workload import LoadOptions, Round, Workload, as_load, choose_workload
from eaglelab.sweep.progress import Progress
from eaglelab.sweep.rounds import Slot, requests_a_round, schedule

__all__ = ["MEASURE", "MeasureArguments", "workload_of"]

Count = Annotated[int, Field(ge=1)]
_FLUSH_PAUSE_S = 1.0
"""After this pause on the server's clock the probe writes out what it holds as soon as the next prompt comes in.

Its limit is 0.25 s, or two cycles of a model that is slower."""


class MeasureArguments(Arguments):
    """What is sent. The names are those of SGLang's bench_serving where it has them.

    `steps`: the counts among which the requests of one load choose; empty: as the server was started.
    `rounds`: how often the settings take turns; `num_prompts` requests of each setting are spread over them, after
    `warmup` more that are not counted. With `probed` each round is sent twice, unmeasured and measured: throughput is
    ranked by the unmeasured ones, and the difference is the probe's own cost. `silence`: seconds without a byte.
    """

    steps: list[Count] = []
    concurrency: list[Count] = [1]
    rounds: Count = 6
    num_prompts: Count = 12
    warmup: Annotated[int, Field(ge=0)] = 1
    prompts: str | None = None
    random_input_len: Count | None = None
    random_output_len: Count | None = None
    random_range_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    output_len: Annotated[int, Field(ge=2)] = 256
    temperature: Annotated[float, Field(ge=0)] = 0.0
    request_rate: Annotated[float, Field(gt=0)] | None = None
    seed: int = 42
    probed: bool = True
    flush_cache: bool = True
    silence: Annotated[float, Field(gt=0)] = 120.0
    folder: str = ""

    def options(self) -> LoadOptions:
        return LoadOptions(
            num_prompts=None if self.prompts else _most_prompts(self),
            prompts=self.prompts,
            random_input_len=self.random_input_len,
            random_output_len=self.random_output_len,
            random_range_ratio=self.random_range_ratio,
            output_len=None if self.random_output_len else self.output_len,
            temperature=self.temperature,
            seed=self.seed,
        )


def _most_prompts(args: MeasureArguments) -> int:
    """As many different prompts as the rounds and the warm-up can use."""
    sizes = [requests_a_round(args.num_prompts, count, args.rounds) for count in args.concurrency]
    return max(sizes) * args.rounds + args.warmup


def _check(_: Options, args: MeasureArguments) -> None:
    """What cannot be sent is refused before a host is contacted; a vocabulary is known there only."""
    if len(set(args.steps)) < len(args.steps) or len(set(args.concurrency)) < len(args.concurrency):
        raise InputError("a step count or a concurrency is named twice", where="measure", hint="name each once")
    choose_workload(args.options(), _read, vocabulary=1 << 31)


def _read(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the prompts cannot be read: {error}", where=name, hint="--prompts FILE.jsonl") from error


def workload_of(context: Context, args: MeasureArguments) -> Workload:
    """What is sent. Raises InputError where the model's vocabulary is needed and its config.json does not say it."""
    return choose_workload(args.options(), _read, vocabulary_size(context) if args.random_input_len else None)


def _measure(context: Context, args: MeasureArguments) -> dict[str, Any]:
    workload = workload_of(context, args)
    measured: list[Measurement] = []
    for concurrency in args.concurrency:
        kept = _kept(context, args, concurrency) if context.begun_before else None
        found = kept if kept is not None else _at(context, args, workload, concurrency)
        context.found.measurements += found  # at once: what was measured holds, whatever becomes of the next
        measured += found
    summaries = [summarise_bench(found.result).to_json() for found in measured]
    return {"settings": summaries, "findings": [each.to_json() for found in measured for each in found.findings]}


def _at(context: Context, args: MeasureArguments, workload: Workload, concurrency: int) -> list[Measurement]:
    """All settings of this load at one concurrency; what came out is in the bundle when this returns."""
    slots = schedule(
        args.steps or [None],
        prompts=len(workload.prompts),
        num_prompts=args.num_prompts,
        concurrency=concurrency,
        rounds=args.rounds,
        warmup=args.warmup,
        probed=args.probed,
        switching=len(args.steps) > 1,
    )
    name, going_on = _load(context, args, concurrency)
    load = as_load(
        [*_rounds(context, args, workload, slots, name), *_flush(context, args, name)],
        host=context.server_address,
        port=context.port,
        key=context.api_key,
        max_concurrency=concurrency,
        request_rate=args.request_rate,
        silence=args.silence,
    )
    witness = begin(context, PurePosixPath(args.folder) / f"c{concurrency}", going_on=going_on)
    progress = Progress(slots, load["requests"], concurrency, context.clock_rate)

    def watch(told: Mapping[str, Any] | None, so_far: LoadResult) -> None:
        context.say.progress(progress.line(told, so_far.records), progress_table(progress.settings(so_far.records)))

    result = drive(context, name, load["spec"], load["requests"], watch)
    _keep_lines(context, args, concurrency, result)
    return _made_of(context, args, slots, concurrency, result, witness)


def _rounds(
    context: Context, args: MeasureArguments, workload: Workload, slots: Sequence[Slot], name: str
) -> list[Round]:
    info = context.found.server_info
    return [
        Round(
            [
                workload.body(
                    prompt,
                    f"eaglelab-{name}-{number}.{at}-{context.run}",
                    info,
                    steps=slot.steps,
                    measured=slot.measured,
                    tokens=slot.tokens,
                )
                for at, prompt in enumerate(slot.prompts)
            ],
            seed=args.seed + (slot.round or 0),
            flush=args.flush_cache,
        )
        for number, slot in enumerate(slots)
    ]


def _flush(context: Context, args: MeasureArguments, name: str) -> list[Round]:
    """A prompt after a pause makes the probe write out its unfinished block; one token needs no decode cycle."""
    if context.found.probe_folder is None:
        return []
    one = Workload(choose_workload(LoadOptions(num_prompts=1), _read, None).prompts, "built-in", output_len=1)
    body = one.body(0, f"eaglelab-{name}-flush-{context.run}", context.found.server_info, measured=False)
    return [Round([body], seed=args.seed, pause_s=_FLUSH_PAUSE_S / context.clock_rate)]


def _made_of(
    context: Context,
    args: MeasureArguments,
    slots: Sequence[Slot],
    concurrency: int,
    result: LoadResult,
    witness: Witness,
) -> list[Measurement]:
    samples: dict[tuple[int | None, bool], list[RequestSample]] = defaultdict(list)
    for record in sorted(result.records, key=lambda record: int(record["index"])):
        if record["round"] < len(slots) and slots[record["round"]].round is not None:
            slot = slots[record["round"]]
            sample = sample_of_record(record, clock_rate=context.clock_rate, round_number=slot.round)
            samples[slot.steps, slot.measured].append(sample)
    results = [
        BenchResult(
            count or context.found.steps,
            concurrency,
            tuple(found),
            profiled=measured,
            variation=context.found.variation,
            load=args.folder,
        )
        for (count, measured), found in samples.items()
    ]
    found = examined(
        context,
        results,
        witness,
        one_load=len(args.steps) > 1,
        flushed=args.flush_cache,
        random_prompts=args.random_input_len is not None,
        end=result.end,
    )
    document = to_json(MeasurementSet(tuple(found), context.simulated, context.facts["sglang_version"]))
    context.bundle.text(_file(args, concurrency, "measurements"), document)
    context.bundle.json(_file(args, concurrency, "measured"), _asked(context, args, concurrency))
    return found


def _keep_lines(context: Context, args: MeasureArguments, concurrency: int, result: LoadResult) -> None:
    name = str(PurePosixPath(args.folder) / f"requests-c{concurrency}.jsonl")
    context.bundle.lines(name, result.lines)


def _file(args: MeasureArguments, concurrency: int, what: str) -> str:
    return str(PurePosixPath(args.folder) / f"{what}-c{concurrency}.json")


def _asked(context: Context, args: MeasureArguments, concurrency: int) -> dict[str, Any]:
    """All that the figures depend on: what was asked for, and the setting of the server that was asked."""
    digest = None if args.prompts is None else hashlib.sha256(_read(args.prompts).encode()).hexdigest()
    return {
        "args": {**args.model_dump(exclude={"concurrency"}), "prompts_sha256": digest},
        "concurrency": concurrency,
        "fingerprint": (context.found.record or {}).get("fingerprint"),
        # What a job measured on one node says nothing of what its successor measures on another.
        **({} if context.nodes is None else {"node": context.found.node}),
    }


def _kept(context: Context, args: MeasureArguments, concurrency: int) -> list[Measurement] | None:
    """What an earlier try of this run measured under the very same setting."""
    asked = _asked(context, args, concurrency)
    if asked["fingerprint"] is None or context.bundle.read(_file(args, concurrency, "measured")) != asked:
        return None
    path = context.bundle.path(_file(args, concurrency, "measurements"))
    found = from_json(path.read_text(encoding="utf-8")).measurements
    context.say.line(f"  concurrency {concurrency}: measured before, {len(found)} figures are in the bundle")
    return list(found)


def _load(context: Context, args: MeasureArguments, concurrency: int) -> tuple[str, bool]:
    """Its name, and whether an earlier try of this run began it, on the server that still runs; else it is a new one."""
    return load_name(
        context,
        f"{args.folder.replace('/', '-') or 'load'}-c{concurrency}",
        str(PurePosixPath(args.folder) / f"load-c{concurrency}.json"),
        {"server": identity(context.found.record), "asked": _asked(context, args, concurrency)},
    )


def _holds(context: Context, args: MeasureArguments, _: Mapping[str, Any]) -> bool:
    kept = [_kept(context, args, concurrency) for concurrency in args.concurrency]
    if any(found is None for found in kept):
        return False
    context.found.measurements += [found for each in kept for found in each or []]
    return True


def _preview(context: Context, args: MeasureArguments) -> dict[str, Any]:
    settings = ", ".join(f"{count} steps" for count in args.steps) or "this setting"
    for concurrency in args.concurrency:
        requests = requests_a_round(args.num_prompts, concurrency, args.rounds) * args.rounds
        context.say.line(
            f"  would measure {settings} at concurrency {concurrency}: {requests} requests of {args.output_len} tokens each"
            + (", with and without the probe" if args.probed else "")
        )
    return {}


MEASURE = Action(
    "measure",
    MeasureArguments,
    "a load on the server in rounds, with and without the probe in turn",
    _measure,
    _preview,
    check=_check,
    holds=_holds,
    nodes="first",
)
