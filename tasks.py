"""The commands. Each reads its options and calls the package; `invoke --list` shows them, `invoke --help NAME` one.

Imports stand inside the commands, so that `invoke --list` is there at once. Options are written out in full: a short
form that Invoke makes up would mean another option from one command to the next.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from invoke import Context, Exit
from invoke import task as invoke_task

from eaglelab.commands.positionals import TakesNames

# Invoke turns bytecode off, and every command would compile all of the package.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
gc.set_threshold(50_000, 20, 50)  # what is imported stays: looking through it for garbage is a tenth of the start

PROJECT = Path(__file__).resolve().parent

task = partial(invoke_task, auto_shortflags=False)

COMMON = {
    "host": "host or group of the inventory, NAME[,NAME] (else EAGLELAB_HOST, else its default_host)",
    "check": "change nothing: say what would be done, with the diff",
    "json": "the last line of stdout is one JSON object; all else goes to stderr",
    "debug": "show tracebacks",
    "inventory": "another inventory file",
}
PLAIN = {name: COMMON[name] for name in ("json", "debug")}
TAKEOVER = {"takeover": "end the server that is in the way though eaglelab, or you, did not start it"}
STEAL = {"steal_lock": "take the host's lock from the run that holds it, and end that one"}
RESUME = {"resume": "go on with a run of this command: its name, a beginning or end of it, or last"}
FORKS = {"forks": "hosts at work at once (else 32)"}
MANY = {
    **FORKS,
    "serial": "hosts a batch, one batch after the other (else the playbook's, else all in one)",
    "on_failure": "of one host, for the others: stop (begin no more), continue, or rollback (end and put back all)",
}
DRIFT = {"accept_drift": "patch workers that are not those of their release, too"}


def _run(work: Callable[[Any, Any], None], as_json: bool, debug: bool) -> None:
    from eaglelab.commands.outcome import perform

    code = perform(work, as_json=as_json, debug=debug)
    if code:
        raise Exit(code=code)


def _manner(forks: str | None, serial: str | None = None, on_failure: str | None = None) -> Any:
    from eaglelab.commands.options import given, read, whole
    from eaglelab.commands.together import Manner

    counts = {"forks": read(forks, whole, "--forks"), "serial": read(serial, whole, "--serial")}
    return Manner(**given(**counts, on_failure=on_failure))


def _request(command: str, host: str | None, inventory: str | None, check: bool, **more: Any) -> Any:
    from eaglelab.commands.request import Request

    return Request(command, PROJECT, host=host, inventory=inventory, check=check, **more)


@task(
    help={
        **COMMON,
        **TAKEOVER,
        **DRIFT,
        **STEAL,
        **RESUME,
        **MANY,
        "steps": "draft steps (else the inventory's)",
        "tokens": "length of the profiled request",
        "patch": "a folder under patches/",
    }
)
def deploy_profiling(
    c: Context,
    host=None,
    steps=None,
    tokens=None,
    patch=None,
    takeover=False,
    accept_drift=False,
    steal_lock=False,
    resume=None,
    forks=None,
    serial=None,
    on_failure=None,
    check=False,
    json=False,
    debug=False,
    inventory=None,
):  # type: ignore[no-untyped-def]
    """Patch, start, drive, and bring the profile home."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.options import filled, given, one_step, read, whole
        from eaglelab.commands.play import play

        tokens_wanted, steps_wanted = read(tokens, whole, "--tokens", least=32), read(steps, one_step)
        chosen = given(patch=filled(patch, "--patch"), tokens=tokens_wanted, steps=steps_wanted)
        how = {"takeover": takeover, "accept_drift": accept_drift, "steal_lock": steal_lock, "resume": resume}
        how["manner"] = _manner(forks, serial, on_failure)
        request = _request("deploy-profiling", host, inventory, check, vars=chosen, **how)
        play(request, "deploy-profiling", outcome, say)

    _run(work, json, debug)


_LOAD = {
    "client": "who sends the requests: built-in, or sglang for the host's own sglang.bench_serving, probe off",
    "num_prompts": "requests a setting, spread over the rounds (--client sglang: of each run)",
    "repeats": "rounds in which the settings take turns (--client sglang: runs at each concurrency)",
    "concurrency": "requests at a time, N[,N]",
    "request_rate": "requests a second, at random times (Poisson); concurrency is then a limit",
    "prompts": "a JSONL file of prompts (else the built-in ones)",
    "random_input_len": "random token ids instead, up to so many",
    "random_output_len": "up to so many tokens for each of them",
    "random_range_ratio": "shortest random length as a share of the longest",
    "output_len": "tokens a request",
    "warmup": "requests of each setting before that are not counted",
    "temperature": "sampling temperature",
    "seed": "of random prompts and arrivals",
    "no_baseline": "do not measure without speculation (that is a load of its own)",
    "keep": "leave the last server up: the next command saves its load",
    "separate_loads": "a load for each setting, also where one could serve several",
    "no_probe": "leave every request unmeasured: half as many, throughput only, no phases",
}


def _measured(options: dict[str, Any]) -> dict[str, Any]:
    """The options of `_LOAD` that were given, checked, as the playbook's variables."""
    from eaglelab.commands.options import counts, decimal, given, read, whole

    return given(
        num_prompts=read(options["num_prompts"], whole, "--num-prompts"),
        repeats=read(options["repeats"], whole, "--repeats"),
        concurrency=read(options["concurrency"], counts, "--concurrency"),
        request_rate=read(options["request_rate"], decimal, "--request-rate", above_zero=True),
        prompts=options["prompts"],
        random_input_len=read(options["random_input_len"], whole, "--random-input-len"),
        random_output_len=read(options["random_output_len"], whole, "--random-output-len"),
        random_range_ratio=read(options["random_range_ratio"], decimal, "--random-range-ratio"),
        output_len=read(options["output_len"], whole, "--output-len", least=2),
        warmup=read(options["warmup"], whole, "--warmup", least=0),
        temperature=read(options["temperature"], decimal, "--temperature"),
        seed=read(options["seed"], whole, "--seed", least=0),
    )


def _measure(command: str, options: dict[str, Any]) -> None:
    """bench and sweep: the same work, asked for in other words."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.bench import bench
        from eaglelab.commands.options import read
        from eaglelab.server.command import parse_steps
        from eaglelab.sweep.values import environments, server_args

        how = {name: options[name] for name in ("takeover", "accept_drift", "steal_lock", "resume")}
        how["manner"] = _manner(*(options[name] for name in ("forks", "serial", "on_failure")))
        chosen = _measured(options)
        more = {
            "steps": read(options["steps"], parse_steps),
            "client": options["client"],
            "file": options.get("file"),
            "env": environments(options.get("env", [])),
            "server_args": server_args(options.get("server_arg", [])),
            "combine": "zip" if options.get("zip") else None,
            **{
                name: options.get(name, False)
                for name in ("no_baseline", "no_probe", "separate_loads", "anyway", "keep", "spread")
            },
        }
        request = _request(command, options["host"], options["inventory"], options["check"], vars=chosen, **how)
        bench(request, more, outcome, say)

    _run(work, options["json"], options["debug"])


@task(
    help={**COMMON, **TAKEOVER, **DRIFT, **STEAL, **RESUME, **MANY, **_LOAD, "steps": "step counts to measure, N[,N]"}
)
def bench(
    c: Context,
    steps=None,
    host=None,
    no_baseline=False,
    client=None,
    keep=False,
    separate_loads=False,
    no_probe=False,
    num_prompts=None,
    repeats=None,
    concurrency=None,
    request_rate=None,
    prompts=None,
    random_input_len=None,
    random_output_len=None,
    random_range_ratio=None,
    output_len=None,
    warmup=None,
    temperature=None,
    seed=None,
    takeover=False,
    accept_drift=False,
    steal_lock=False,
    resume=None,
    forks=None,
    serial=None,
    on_failure=None,
    check=False,
    json=False,
    debug=False,
    inventory=None,
):  # type: ignore[no-untyped-def]
    """Measure step counts against the baseline."""
    _measure("bench", {name: value for name, value in locals().items() if name != "c"})


@task(
    help={
        **COMMON,
        **TAKEOVER,
        **DRIFT,
        **STEAL,
        **RESUME,
        **MANY,
        **_LOAD,
        "steps": "step counts to measure, N[,N]",
        "file": "a sweep file (see playbooks/sweeps/nccl.yaml) instead of steps, env, server-arg and zip",
        "env": "values of a variable to try, NAME=VALUE[,VALUE] (may be repeated)",
        "server_arg": "values of a flag to try, NAME=VALUE[,VALUE], on and off for a switch (may be repeated)",
        "zip": "the n-th value of each together (else every one with every other)",
        "anyway": "also settings that cannot change a decode cycle here, or that doctor is certain cannot run",
        "spread": "deal the loads out to the hosts, which must be equal, instead of measuring all on each",
    },
    iterable=["env", "server_arg"],
)
def sweep(
    c: Context,
    steps=None,
    file=None,
    env=None,
    server_arg=None,
    zip=False,
    anyway=False,
    spread=False,
    host=None,
    no_baseline=False,
    client=None,
    keep=False,
    separate_loads=False,
    no_probe=False,
    num_prompts=None,
    repeats=None,
    concurrency=None,
    request_rate=None,
    prompts=None,
    random_input_len=None,
    random_output_len=None,
    random_range_ratio=None,
    output_len=None,
    warmup=None,
    temperature=None,
    seed=None,
    takeover=False,
    accept_drift=False,
    steal_lock=False,
    resume=None,
    forks=None,
    serial=None,
    on_failure=None,
    check=False,
    json=False,
    debug=False,
    inventory=None,
):  # type: ignore[no-untyped-def]
    """Measure many settings in as few loads as it takes."""
    _measure("sweep", {name: value for name, value in locals().items() if name != "c"})


@task(help={**COMMON, **FORKS, **STEAL})
def rollback(c: Context, host=None, forks=None, steal_lock=False, check=False, json=False, debug=False, inventory=None):  # type: ignore[no-untyped-def]
    """Stop our server and put every original back."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.play import play

        manner = _manner(forks, on_failure="continue")
        request = _request("rollback", host, inventory, check, steal_lock=steal_lock, manner=manner)
        play(request, "rollback", outcome, say)

    _run(work, json, debug)


@task(
    help={
        **COMMON,
        **TAKEOVER,
        **DRIFT,
        **STEAL,
        **RESUME,
        **MANY,
        "file": "playbook: a file, or a name under playbooks/",
        "var": "NAME=VALUE for one of its variables; may be repeated",
        "tags": "only tasks with one of these tags",
        "skip_tags": "no tasks with one of these",
    },
    iterable=["var"],
)
def play(
    c: Context,
    file,
    var=None,
    tags=None,
    skip_tags=None,
    host=None,
    takeover=False,
    accept_drift=False,
    steal_lock=False,
    resume=None,
    forks=None,
    serial=None,
    on_failure=None,
    check=False,
    json=False,
    debug=False,
    inventory=None,
):  # type: ignore[no-untyped-def]
    """Run any playbook."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.options import assignments, read, words
        from eaglelab.commands.play import play as run

        request = _request(
            "play",
            host,
            inventory,
            check,
            takeover=takeover,
            accept_drift=accept_drift,
            steal_lock=steal_lock,
            resume=resume,
            manner=_manner(forks, serial, on_failure),
            vars=assignments(var or ()),
            tags=read(tags, words, "--tags") or (),
            skip_tags=read(skip_tags, words, "--skip-tags") or (),
        )
        run(request, file, outcome, say)

    _run(work, json, debug)


@task(help={**COMMON, **FORKS})
def doctor(c: Context, host=None, forks=None, check=False, json=False, debug=False, inventory=None):  # type: ignore[no-untyped-def]
    """See whether a host is fit for a run; changes nothing."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.look import doctor as look

        look(_request("doctor", host, inventory, check, manner=_manner(forks, on_failure="continue")), outcome, say)

    _run(work, json, debug)


@task(help={**COMMON, **FORKS})
def status(c: Context, host=None, forks=None, check=False, json=False, debug=False, inventory=None):  # type: ignore[no-untyped-def]
    """Show what is patched and which server of ours runs."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.look import status as look

        look(_request("status", host, inventory, check, manner=_manner(forks, on_failure="continue")), outcome, say)

    _run(work, json, debug)


@task(
    help={
        **COMMON,
        **FORKS,
        "runs": "list the runs under logs/ with their headline instead; nothing is contacted",
        "lines": "how many of its last lines, or of the newest runs, to show (else 20, and all for trend and export)",
        "model": "only runs of models with this in their path",
        "sglang": "only runs of this version, or of those that begin with it",
        "since": "only runs since then: 7d, 12h, 2w or 2026-11-23",
        "trend": "each setting over time, the newest run against those before",
        "export": "write them as rows: a file that ends in .csv, .jsonl or .parquet",
    }
)
def logs(
    c: Context,
    runs=False,
    host=None,
    lines=None,
    model=None,
    sglang=None,
    since=None,
    trend=False,
    export=None,
    forks=None,
    check=False,
    json=False,
    debug=False,
    inventory=None,
):  # type: ignore[no-untyped-def]
    """Show the end of the server's log, or list the runs."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.options import filled, read, whole

        count = read(lines, whole, "--lines", least=0)
        if runs or trend or any(each is not None for each in (model, sglang, since, export)):
            from eaglelab.commands.runs import list_runs
            from eaglelab.commands.runs import since as moment
            from eaglelab.runs.history import Asked

            asked = Asked(
                model=filled(model, "--model"),
                host=filled(host, "--host"),
                sglang=filled(sglang, "--sglang"),
                since=read(since, moment),
            )
            most = 20 if count is None and not trend and export is None else count
            file = filled(export, "--export")
            list_runs(PROJECT / "logs", asked, most, outcome, say, trend=trend, file=file)
        else:
            from eaglelab.commands.look import logs as look

            request = _request("logs", host, inventory, check, manner=_manner(forks, on_failure="continue"))
            look(request, 20 if count is None else count, outcome, say)

    _run(work, json, debug)


@task(help={**COMMON, **FORKS, **STEAL})
def stop(c: Context, host=None, forks=None, steal_lock=False, check=False, json=False, debug=False, inventory=None):  # type: ignore[no-untyped-def]
    """End our server and nothing else; a patch stays."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.look import stop as end

        manner = _manner(forks, on_failure="continue")
        end(_request("stop", host, inventory, check, steal_lock=steal_lock, manner=manner), outcome, say)

    _run(work, json, debug)


@task(
    help={
        **PLAIN,
        "run": "a run under logs/, RUN[:HOST], or the beginning or end of its name (else the newest with a profile or measurements)",
        "log": "a server log of any release, packed too, - for standard input (may be repeated)",
        "html": "write a page that can be sent to a colleague: to a file, else into the run's folder",
        "plots": "write every chart as SVG and PNG into this folder",
        "trace": "write the cycles as a trace for Perfetto; packed if the name ends with .gz",
    },
    iterable=["log"],
    optional=["html"],
)
def report(c: Context, run=None, log=None, html=None, plots=None, trace=None, json=False, debug=False):  # type: ignore[no-untyped-def]
    """Show and explain a run, or what a server log says."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.report import Wanted
        from eaglelab.commands.report import report as show

        show(PROJECT, Wanted(run, log or (), html, plots, trace), outcome, say)

    _run(work, json, debug)


@task(
    klass=TakesNames,
    help={
        **PLAIN,
        "names": "the reference first: run[:host] (a name, a beginning or end of it, last, a folder), run,run for loads of one thing; a run of several hosts alone compares those",
        "gate": "fail where a figure differs by more than this, such as 'tok_s >= -3%' (may be repeated)",
        "judge": "a gate is judged by the estimate, strict (the whole interval holds) or lenient (all of it misses)",
        "junit": "write the gates here as JUnit XML",
        "markdown": "write the comparison here as Markdown",
    },
    iterable=["names", "gate"],
)
def compare(c: Context, names=None, gate=None, judge="estimate", junit=None, markdown=None, json=False, debug=False):  # type: ignore[no-untyped-def]
    """Hold runs against the first one named, with gates."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.compare import compare as hold

        hold(PROJECT / "logs", names, gate, judge, (junit, markdown), outcome, say)

    _run(work, json, debug)


@task(
    help={
        **PLAIN,
        "file": "a local copy of a worker",
        "out": "write the patched file here",
        "patch": "a folder under patches/",
    }
)
def patch_check(c: Context, file=None, out=None, patch="eagle3-profile", json=False, debug=False):  # type: ignore[no-untyped-def]
    """Plan the patch for a local copy of a worker file."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.files import patch_check as plan

        plan(PROJECT, file, out, patch, outcome, say)

    _run(work, json, debug)


@task(
    help={
        **PLAIN,
        "sglang": "release to install there",
        "load_seconds": "how long its server loads",
        "clock_rate": "how much faster than wall time the simulated GPU's clock runs",
        "model": "costs and acceptance (YAML), else the built-in ones",
        "port": "of its SSH server, else a free one",
    }
)
def lab_up(c: Context, sglang="0.5.9", load_seconds="3", clock_rate="8", model=None, port="0", json=False, debug=False):  # type: ignore[no-untyped-def]
    """Bring the embedded lab up: host `sim`, simulated GPU."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.hosts import lab_root
        from eaglelab.commands.lab import lab_up as up
        from eaglelab.commands.options import decimal, filled, read, whole
        from eaglelab.lab.lab import LabOptions

        options = LabOptions(
            root=lab_root(PROJECT),
            sglang=filled(sglang, "--sglang"),
            load_seconds=decimal(load_seconds, "--load-seconds"),
            clock_rate=decimal(clock_rate, "--clock-rate", above_zero=True),
            model=read(filled(model, "--model"), Path),
            port=whole(port, "--port", least=0),
        )
        up(options, outcome, say)

    _run(work, json, debug)


@task(help=PLAIN)
def lab_down(c: Context, json=False, debug=False):  # type: ignore[no-untyped-def]
    """Take the embedded lab down and leave nothing behind."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.lab import lab_down as down

        down(PROJECT, say)

    _run(work, json, debug)


@task(help=PLAIN)
def demo(c: Context, json=False, debug=False):  # type: ignore[no-untyped-def]
    """Walk the whole road on a lab: deploy, bench, rollback."""
    os.environ["EAGLELAB_LOOPBACK_ONLY"] = "1"

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.lab import demo as walk

        walk(PROJECT, outcome, say)

    _run(work, json, debug)
