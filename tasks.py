"""The commands. Each reads its options and calls the package; `invoke --list` shows them, `invoke --help NAME` one.

Imports stand inside the commands, so that `invoke --list` is there at once.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

# Invoke turns bytecode off, and every command would compile all of the package.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

from eaglelab.commands.command import Asked, Option, command, listed, needed, switch  # noqa: E402 - see above
from eaglelab.commands.positionals import TakesNames  # noqa: E402 - see above

gc.set_threshold(50_000, 20, 50)  # what is imported stays: looking through it for garbage is a tenth of the start
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # else it reads what every package here says of itself

PROJECT = Path(__file__).resolve().parent

PLAIN = {
    "json": switch("the last line of stdout is one JSON object; all else goes to stderr"),
    "debug": switch("show tracebacks"),
}
COMMON = {
    **PLAIN,
    "host": Option("host or group of the inventory, NAME[,NAME] (else EAGLELAB_HOST, else its default_host)"),
    "check": switch("change nothing: say what would be done, with the diff"),
    "inventory": Option("another inventory file"),
    "forks": Option("hosts at work at once (else 32)"),
}
STEAL = {"steal_lock": switch("take the host's lock from the run that holds it, and end that one")}
RUNS = {
    **COMMON,
    **STEAL,
    "takeover": switch("end the server that is in the way though eaglelab, or you, did not start it"),
    "accept_drift": switch("patch workers that are not those of their release, too"),
    "resume": Option("go on with a run of this command: its name, a beginning or end of it, or last"),
    "serial": Option("hosts a batch, one batch after the other (else the playbook's, else all in one)"),
    "on_failure": Option(
        "of one host, for the others: stop (begin no more), continue, or rollback (end and put back all)"
    ),
}
MEASURES = {
    **RUNS,
    "steps": Option("step counts to measure, N[,N]"),
    "client": Option("who sends the requests: built-in, or sglang for the host's own sglang.bench_serving, probe off"),
    "num_prompts": Option("requests a setting, spread over the rounds (--client sglang: of each run)"),
    "repeats": Option("rounds in which the settings take turns (--client sglang: runs at each concurrency)"),
    "concurrency": Option("requests at a time, N[,N]"),
    "request_rate": Option("requests a second, at random times (Poisson); concurrency is then a limit"),
    "prompts": Option("a JSONL file of prompts (else the built-in ones)"),
    "random_input_len": Option("random token ids instead, up to so many"),
    "random_output_len": Option("up to so many tokens for each of them"),
    "random_range_ratio": Option("shortest random length as a share of the longest"),
    "output_len": Option("tokens a request"),
    "warmup": Option("requests of each setting before that are not counted"),
    "temperature": Option("sampling temperature"),
    "seed": Option("of random prompts and arrivals"),
    "no_baseline": switch("do not measure without speculation (that is a load of its own)"),
    "keep": switch("leave the last server up: the next command saves its load"),
    "separate_loads": switch("a load for each setting, also where one could serve several"),
    "no_probe": switch("leave every request unmeasured: half as many, throughput only, no phases"),
}


def _manner(forks: str | None, serial: str | None = None, on_failure: str | None = None) -> Any:
    from eaglelab.commands.options import given, read, whole
    from eaglelab.commands.together import Manner

    counts = {"forks": read(forks, whole, "--forks"), "serial": read(serial, whole, "--serial")}
    return Manner(**given(**counts, on_failure=on_failure))


def _request(name: str, asked: Asked, **more: Any) -> Any:
    from eaglelab.commands.request import Request

    return Request(name, PROJECT, host=asked.host, inventory=asked.inventory, check=asked.check, **more)


def _look(name: str, asked: Asked, **more: Any) -> Any:
    """For a command that goes on with the other hosts whatever one of them says."""
    return _request(name, asked, manner=_manner(asked.forks, on_failure="continue"), **more)


def _run(name: str, asked: Asked, **more: Any) -> Any:
    """For a command that leaves a run."""
    how = {option: getattr(asked, option) for option in ("takeover", "accept_drift", "steal_lock", "resume")}
    return _request(name, asked, manner=_manner(asked.forks, asked.serial, asked.on_failure), **how, **more)


@command(
    RUNS,
    steps=Option("draft steps (else the inventory's)"),
    tokens=Option("length of the profiled request"),
    patch=Option("a folder under patches/"),
)
def deploy_profiling(asked: Asked, outcome: Any, say: Any) -> None:
    """Patch, start, drive, and bring the profile home."""
    from eaglelab.commands.options import filled, given, one_step, read, whole
    from eaglelab.commands.play import play

    tokens, steps = read(asked.tokens, whole, "--tokens", least=32), read(asked.steps, one_step)
    chosen = given(patch=filled(asked.patch, "--patch"), tokens=tokens, steps=steps)
    play(_run("deploy-profiling", asked, vars=chosen), "deploy-profiling", outcome, say)


def _measured(asked: Asked) -> dict[str, Any]:
    """What was asked of the requests, checked, as the playbook's variables."""
    from eaglelab.commands.options import counts, decimal, given, read, whole

    return given(
        num_prompts=read(asked.num_prompts, whole, "--num-prompts"),
        repeats=read(asked.repeats, whole, "--repeats"),
        concurrency=read(asked.concurrency, counts, "--concurrency"),
        request_rate=read(asked.request_rate, decimal, "--request-rate", above_zero=True),
        prompts=asked.prompts,
        random_input_len=read(asked.random_input_len, whole, "--random-input-len"),
        random_output_len=read(asked.random_output_len, whole, "--random-output-len"),
        random_range_ratio=read(asked.random_range_ratio, decimal, "--random-range-ratio"),
        output_len=read(asked.output_len, whole, "--output-len", least=2),
        warmup=read(asked.warmup, whole, "--warmup", least=0),
        temperature=read(asked.temperature, decimal, "--temperature"),
        seed=read(asked.seed, whole, "--seed", least=0),
    )


def _measure(name: str, asked: Asked, outcome: Any, say: Any, **varied: Any) -> None:
    """bench and sweep: the same work, asked for in other words."""
    from eaglelab.commands.bench import bench as measure
    from eaglelab.commands.options import read
    from eaglelab.server.command import parse_steps

    request = _run(name, asked, vars=_measured(asked))
    more = {
        "steps": read(asked.steps, parse_steps),
        "client": asked.client,
        **{option: getattr(asked, option) for option in ("no_baseline", "no_probe", "separate_loads", "keep")},
        "file": None,
        "env": (),
        "server_args": (),
        "combine": None,
        "anyway": False,
        "spread": False,
        **varied,
    }
    measure(request, more, outcome, say)


@command(MEASURES)
def bench(asked: Asked, outcome: Any, say: Any) -> None:
    """Measure step counts against the baseline."""
    _measure("bench", asked, outcome, say)


@command(
    MEASURES,
    file=Option("a sweep file (see playbooks/sweeps/nccl.yaml) instead of steps, env, server-arg and zip"),
    env=listed("values of a variable to try, NAME=VALUE[,VALUE] (may be repeated)"),
    server_arg=listed("values of a flag to try, NAME=VALUE[,VALUE], on and off for a switch (may be repeated)"),
    zip=switch("the n-th value of each together (else every one with every other)"),
    anyway=switch(
        "also settings that cannot change a decode cycle here, that this release or NCCL does not take, or that doctor is certain cannot run"
    ),
    array=Option("all loads as jobs of a Slurm cluster at the same time; with a number, so many at a time", bare=True),
    spread=switch("deal the loads out to the hosts, which must be equal, instead of measuring all on each"),
)
def sweep(asked: Asked, outcome: Any, say: Any) -> None:
    """Measure many settings in as few loads as it takes."""
    from eaglelab.commands.options import bare
    from eaglelab.sweep.values import environments, server_args

    varied = {"env": environments(asked.env), "server_args": server_args(asked.server_arg)}
    how = {"combine": "zip" if asked.zip else None, "anyway": asked.anyway, "spread": asked.spread}
    how["array"] = bare(asked.array, "--array")
    _measure("sweep", asked, outcome, say, file=asked.file, **varied, **how)


@command(COMMON, STEAL)
def rollback(asked: Asked, outcome: Any, say: Any) -> None:
    """Stop our server and put every original back."""
    from eaglelab.commands.play import play

    play(_look("rollback", asked, steal_lock=asked.steal_lock), "rollback", outcome, say)


@command(
    RUNS,
    file=needed("playbook: a file, or a name under playbooks/"),
    var=listed("NAME=VALUE for one of its variables; may be repeated"),
    tags=Option("only tasks with one of these tags"),
    skip_tags=Option("no tasks with one of these"),
)
def play(asked: Asked, outcome: Any, say: Any) -> None:
    """Run any playbook."""
    from eaglelab.commands.options import assignments, read, words
    from eaglelab.commands.play import play as run

    only = {
        "tags": read(asked.tags, words, "--tags") or (),
        "skip_tags": read(asked.skip_tags, words, "--skip-tags") or (),
    }
    run(_run("play", asked, vars=assignments(asked.var), **only), asked.file, outcome, say)


@command(COMMON)
def doctor(asked: Asked, outcome: Any, say: Any) -> None:
    """See whether a host is fit for a run; changes nothing."""
    from eaglelab.commands.look import doctor as look

    look(_look("doctor", asked), outcome, say)


@command(COMMON)
def status(asked: Asked, outcome: Any, say: Any) -> None:
    """Show what is patched and which server of ours runs."""
    from eaglelab.commands.look import status as look

    look(_look("status", asked), outcome, say)


@command(
    COMMON,
    runs=switch("list the runs under logs/ with their headline instead; nothing is contacted"),
    lines=Option("how many of its last lines, or of the newest runs, to show (else 20, and all for trend and export)"),
    model=Option("only runs of models with this in their path"),
    sglang=Option("only runs of this version, or of those that begin with it"),
    since=Option("only runs since then: 7d, 12h, 2w or 2026-11-23"),
    trend=switch("each setting over time, the newest run against those before"),
    export=Option("write them as rows: a file that ends in .csv, .jsonl or .parquet"),
)
def logs(asked: Asked, outcome: Any, say: Any) -> None:
    """Show the end of the server's log, or list the runs."""
    from eaglelab.commands.options import filled, read, whole

    lines = read(asked.lines, whole, "--lines", least=0)
    chosen = any(each is not None for each in (asked.model, asked.sglang, asked.since, asked.export))
    if not (asked.runs or asked.trend or chosen):
        from eaglelab.commands.look import logs as look

        look(_look("logs", asked), 20 if lines is None else lines, outcome, say)
        return
    from eaglelab.commands.runs import list_runs
    from eaglelab.commands.runs import since as moment
    from eaglelab.runs.history import Asked as Chosen

    which = Chosen(
        model=filled(asked.model, "--model"),
        host=filled(asked.host, "--host"),
        sglang=filled(asked.sglang, "--sglang"),
        since=read(asked.since, moment),
    )
    most = 20 if lines is None and not asked.trend and asked.export is None else lines
    file = filled(asked.export, "--export")
    list_runs(PROJECT / "logs", which, most, outcome, say, trend=asked.trend, file=file)


@command(COMMON, STEAL)
def stop(asked: Asked, outcome: Any, say: Any) -> None:
    """End our server and nothing else; a patch stays."""
    from eaglelab.commands.look import stop as end

    end(_look("stop", asked, steal_lock=asked.steal_lock), outcome, say)


@command(
    PLAIN,
    run=Option(
        "a run under logs/, RUN[:HOST], or the beginning or end of its name (else the newest with a profile or measurements)"
    ),
    log=listed("a server log of any release, packed too, - for standard input (may be repeated)"),
    html=Option("write a page that can be sent to a colleague: to a file, else into the run's folder", bare=True),
    plots=Option("write every chart as SVG and PNG into this folder"),
    trace=Option("write the cycles as a trace for Perfetto; packed if the name ends with .gz"),
)
def report(asked: Asked, outcome: Any, say: Any) -> None:
    """Show and explain a run, or what a server log says."""
    from eaglelab.commands.report import Wanted
    from eaglelab.commands.report import report as show

    show(PROJECT, Wanted(asked.run, asked.log, asked.html, asked.plots, asked.trace), outcome, say)


@command(
    PLAIN,
    klass=TakesNames,
    names=listed(
        "the reference first: run[:host] (a name, a beginning or end of it, last, a folder), run,run for loads of one thing; a run of several hosts alone compares those"
    ),
    gate=listed("fail where a figure differs by more than this, such as 'tok_s >= -3%' (may be repeated)"),
    judge=Option(
        "a gate is judged by the estimate, strict (the whole interval holds) or lenient (all of it misses)", "estimate"
    ),
    junit=Option("write the gates here as JUnit XML"),
    markdown=Option("write the comparison here as Markdown"),
)
def compare(asked: Asked, outcome: Any, say: Any) -> None:
    """Hold runs against the first one named, with gates."""
    from eaglelab.commands.compare import compare as hold

    files = (asked.junit, asked.markdown)
    hold(PROJECT / "logs", asked.names, asked.gate, asked.judge, files, outcome, say)


@command(
    PLAIN,
    file=Option("a local copy of a worker"),
    out=Option("write the patched file here"),
    patch=Option("a folder under patches/", "eagle3-profile"),
)
def patch_check(asked: Asked, outcome: Any, say: Any) -> None:
    """Plan the patch for a local copy of a worker file."""
    from eaglelab.commands.files import patch_check as plan

    plan(PROJECT, asked.file, asked.out, asked.patch, outcome, say)


@command(
    PLAIN,
    sglang=Option("release to install there", "0.5.9"),
    load_seconds=Option("how long its server loads", "3"),
    clock_rate=Option("how much faster than wall time the simulated GPU's clock runs", "8"),
    model=Option("costs and acceptance (YAML), else the built-in ones"),
    port=Option("of its SSH server, else a free one", "0"),
)
def lab_up(asked: Asked, outcome: Any, say: Any) -> None:
    """Bring the embedded lab up: host `sim`, simulated GPU."""
    from eaglelab.commands.hosts import lab_root
    from eaglelab.commands.lab import lab_up as up
    from eaglelab.commands.options import decimal, filled, read, whole
    from eaglelab.lab.lab import LabOptions

    options = LabOptions(
        root=lab_root(PROJECT),
        sglang=filled(asked.sglang, "--sglang"),
        load_seconds=decimal(asked.load_seconds, "--load-seconds"),
        clock_rate=decimal(asked.clock_rate, "--clock-rate", above_zero=True),
        model=read(filled(asked.model, "--model"), Path),
        port=whole(asked.port, "--port", least=0),
    )
    up(options, outcome, say)


@command(PLAIN)
def lab_down(asked: Asked, outcome: Any, say: Any) -> None:
    """Take the embedded lab down and leave nothing behind."""
    from eaglelab.commands.lab import lab_down as down

    down(PROJECT, say)


@command(PLAIN)
def demo(asked: Asked, outcome: Any, say: Any) -> None:
    """Walk the whole road on a lab: deploy, bench, rollback."""
    from eaglelab.commands.lab import demo as walk

    os.environ["EAGLELAB_LOOPBACK_ONLY"] = "1"
    walk(PROJECT, outcome, say)
