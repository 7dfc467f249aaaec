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
TAKEOVER = {"takeover": "end the server that holds the port though eaglelab did not start it"}


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
        "steps": "draft steps (else the inventory's)",
        "tokens": "length of the profiled request",
        "patch": "a folder under patches/",
    }
)
def deploy_profiling(
    c: Context,
    host=None,
    steps=None,
    tokens="1000",
    patch="eagle3-profile",
    takeover=False,
    check=False,
    json=False,
    debug=False,
    inventory=None,
):  # type: ignore[no-untyped-def]
    """Patch, start, drive, and bring the profile home."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.options import one_step, whole
        from eaglelab.commands.play import play

        chosen = {
            "patch": patch,
            "tokens": whole(tokens, "--tokens", least=32),
            **({} if steps is None else {"steps": one_step(steps)}),
        }
        play(
            _request("deploy-profiling", host, inventory, check, takeover=takeover, vars=chosen),
            "deploy-profiling",
            outcome,
            say,
        )

    _run(work, json, debug)


@task(
    help={
        **COMMON,
        **TAKEOVER,
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
    steps="2",
    host=None,
    baseline=False,
    keep=False,
    num_prompts="6",
    output_len="256",
    warmup="1",
    temperature="0",
    takeover=False,
    check=False,
    json=False,
    debug=False,
    inventory=None,
):  # type: ignore[no-untyped-def]
    """Measure throughput and phases, one load a step count."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.bench import bench as measure
        from eaglelab.commands.options import decimal, whole
        from eaglelab.server.command import parse_steps

        chosen = {
            "num_prompts": whole(num_prompts, "--num-prompts"),
            "output_len": whole(output_len, "--output-len", least=32),
            "warmup": whole(warmup, "--warmup", least=0),
            "temperature": decimal(temperature, "--temperature"),
        }
        request = _request("bench", host, inventory, check, takeover=takeover, vars=chosen)
        measure(request, parse_steps(steps), outcome, say, baseline=baseline, keep=keep)

    _run(work, json, debug)


@task(help=COMMON)
def rollback(c: Context, host=None, check=False, json=False, debug=False, inventory=None):  # type: ignore[no-untyped-def]
    """Stop our server and put every original back."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.play import play

        play(_request("rollback", host, inventory, check), "rollback", outcome, say)

    _run(work, json, debug)


@task(
    help={
        **COMMON,
        **TAKEOVER,
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
    tags="",
    skip_tags="",
    host=None,
    takeover=False,
    check=False,
    json=False,
    debug=False,
    inventory=None,
):  # type: ignore[no-untyped-def]
    """Run any playbook."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.options import assignments, words
        from eaglelab.commands.play import play as run

        request = _request(
            "play",
            host,
            inventory,
            check,
            takeover=takeover,
            vars=assignments(var or ()),
            tags=words(tags),
            skip_tags=words(skip_tags),
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


@task(help=COMMON)
def stop(c: Context, host=None, check=False, json=False, debug=False, inventory=None):  # type: ignore[no-untyped-def]
    """End our server and nothing else; a patch stays."""

    def work(outcome: Any, say: Any) -> None:
        from eaglelab.commands.look import stop as end

        end(_request("stop", host, inventory, check), outcome, say)

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
        from eaglelab.commands.options import decimal, whole
        from eaglelab.lab.lab import LabOptions

        options = LabOptions(
            root=lab_root(PROJECT),
            sglang=sglang,
            load_seconds=decimal(load_seconds, "--load-seconds"),
            clock_rate=decimal(clock_rate, "--clock-rate"),
            model=Path(model) if model else None,
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
