"""The commands. Each reads its options and calls the package; `invoke --list` shows them, `invoke --help NAME` one.

Imports stand inside the commands, so that `invoke --list` is there at once. Options are written out in full: a short
form that Invoke makes up would mean another option from one command to the next.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from invoke import Context, Exit
from invoke import task as invoke_task

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
DRIFT = {"accept_drift": "patch workers that are not those of their release, too"}


def _run(work: Callable[[Any, Any], None], as_json: bool, debug: bool) -> None:
    from eaglelab.commands.outcome import perform

    code = perform(work, as_json=as_json, debug=debug)
    if code:
        raise Exit(code=code)


def _request(command: str, host: str | None, inventory: str | None, check: bool, **more: Any) -> Any:
    from eaglelab.commands.play import Request

    return Request(command, PROJECT, host=host, inventory=inventory, check=check, **more)


@task(
    help={
        **COMMON,
        **TAKEOVER,
        **DRIFT,
        **STEAL,
        **RESUME,
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
        request = _request("deploy-profiling", host, inventory, check, vars=chosen, **how)
        play(request, "deploy-profiling", outcome, say)

    _run(work, json, debug)


@task(
    help={
        **COMMON,
        **TAKEOVER,
        **DRIFT,
        **STEAL,
        **RESUME,
        "steps": "step counts to measure, N[,N]",
        "baseline": "measure without speculation first (a load of its own)",
        "keep": "leave the last server up: the next command saves its load",
        "num_prompts": "requests a setting",
        "output_len": "tokens a request",
        "warmup": "requests before that are not counted",
        "temperature": "sampling temperature",
    }
)
def bench(
    c: Context,
    steps=None,
    host=None,
    baseline=False,
    keep=False,
    num_prompts=None,
    output_len=None,
    warmup=None,
    temperature=None,
    takeover=False,
    accept_drift=False,
    steal_lock=False,
    resume=None,
    check=False,
    json=False,
    debug=False,
    inventory=None,
):  # type: ignore[no-untyped-def]
    """Measure throughput and phases, one load a step count."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.bench import bench as measure
        from eaglelab.commands.options import decimal, given, read, whole
        from eaglelab.server.command import parse_steps

        chosen = given(
            num_prompts=read(num_prompts, whole, "--num-prompts"),
            output_len=read(output_len, whole, "--output-len", least=32),
            warmup=read(warmup, whole, "--warmup", least=0),
            temperature=read(temperature, decimal, "--temperature"),
        )
        how = {"takeover": takeover, "accept_drift": accept_drift, "steal_lock": steal_lock, "resume": resume}
        request = _request("bench", host, inventory, check, vars=chosen, **how)
        measure(request, read(steps, parse_steps), outcome, say, baseline=baseline, keep=keep)

    _run(work, json, debug)


@task(help={**COMMON, **STEAL})
def rollback(c: Context, host=None, steal_lock=False, check=False, json=False, debug=False, inventory=None):  # type: ignore[no-untyped-def]
    """Stop our server and put every original back."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.play import play

        play(_request("rollback", host, inventory, check, steal_lock=steal_lock), "rollback", outcome, say)

    _run(work, json, debug)


@task(
    help={
        **COMMON,
        **TAKEOVER,
        **DRIFT,
        **STEAL,
        **RESUME,
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
            vars=assignments(var or ()),
            tags=read(tags, words, "--tags") or (),
            skip_tags=read(skip_tags, words, "--skip-tags") or (),
        )
        run(request, file, outcome, say)

    _run(work, json, debug)


@task(help=COMMON)
def doctor(c: Context, host=None, check=False, json=False, debug=False, inventory=None):  # type: ignore[no-untyped-def]
    """See whether a host is fit for a run; changes nothing."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.look import doctor as look

        look(_request("doctor", host, inventory, check), outcome, say)

    _run(work, json, debug)


@task(help=COMMON)
def status(c: Context, host=None, check=False, json=False, debug=False, inventory=None):  # type: ignore[no-untyped-def]
    """Show what is patched and which server of ours runs."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.look import status as look

        look(_request("status", host, inventory, check), outcome, say)

    _run(work, json, debug)


@task(help={**COMMON, "lines": "how many of its last lines to show"})
def logs(c: Context, host=None, lines="20", check=False, json=False, debug=False, inventory=None):  # type: ignore[no-untyped-def]
    """Bring the server's log home and show its end."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.look import logs as look
        from eaglelab.commands.options import whole

        look(_request("logs", host, inventory, check), whole(lines, "--lines", least=0), outcome, say)

    _run(work, json, debug)


@task(help={**COMMON, **STEAL})
def stop(c: Context, host=None, steal_lock=False, check=False, json=False, debug=False, inventory=None):  # type: ignore[no-untyped-def]
    """End our server and nothing else; a patch stays."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.look import stop as end

        end(_request("stop", host, inventory, check, steal_lock=steal_lock), outcome, say)

    _run(work, json, debug)


@task(
    help={
        **PLAIN,
        "log": "a server log of any release (gzip too)",
        "run": "a run under logs/ (else the newest with a profile)",
    }
)
def report(c: Context, log=None, run=None, json=False, debug=False):  # type: ignore[no-untyped-def]
    """Show a run's profile again, or what a server log says."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.files import report as show

        show(PROJECT, log, run, outcome, say)

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
            clock_rate=decimal(clock_rate, "--clock-rate"),
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
