"""bench and sweep: settings measured in as few loads as it takes; the host is then left as it was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eaglelab.actions import ACTIONS
from eaglelab.bundle import Bundle
from eaglelab.commands.arrays import Array, refuse_array
from eaglelab.commands.clients import Client, client_of
from eaglelab.commands.hosts import Selection
from eaglelab.commands.measuring import Job, load_vars, measure_host
from eaglelab.commands.on_hosts import run_on_hosts
from eaglelab.commands.outcome import Outcome
from eaglelab.commands.past import PastRun
from eaglelab.commands.play import find_playbook, in_batches, prepare, record_of, take_up
from eaglelab.commands.request import Request
from eaglelab.commands.spreading import Spreading, refuse_spread
from eaglelab.commands.together import Manner
from eaglelab.context import Context
from eaglelab.errors import InputError
from eaglelab.playbook import Playbook, load_playbook
from eaglelab.profile.measurement_set import to_json
from eaglelab.report.measurement_view import measurement_table
from eaglelab.report.spread_view import spread_table
from eaglelab.say import Say
from eaglelab.sweep.matrix import Matrix, Variation
from eaglelab.sweep.plan import Load
from eaglelab.sweep.values import load_sweep

__all__ = ["bench", "matrix_of"]

DEFAULT_STEPS = (2,)


def bench(request: Request, more: Mapping[str, Any], outcome: Outcome, say: Say) -> None:
    """Measures what `more` asks for (see `matrix_of`, and `client`; None or empty: not given), then restores what was changed.

    Of a run that is taken up the record holds; what is given again must agree with it.
    """
    client_of(more.get("client"))  # before a run is looked for
    request = take_up(replace(request, more=more), "bench", say)
    client = client_of(request.more.get("client"))
    matrix = matrix_of(request.more)
    matrix.variations()  # a zip that does not fit
    concurrency = list(request.vars.get("concurrency") or [1])
    shared = {**request.vars, "anyway": bool(request.more.get("anyway"))}
    probed = not request.more.get("no_probe")

    def book_of(load: Load) -> Playbook:
        return prepare(replace(request, vars={**shared, **load_vars(load, client, probed=probed)}), client.playbook)[1]

    first = Load(None, Variation()) if matrix.baseline else Load(tuple(matrix.steps[:1]), Variation())
    selection, book = prepare(
        replace(request, vars={**shared, **load_vars(first, client, probed=probed)}), client.playbook
    )
    for host in selection.hosts:
        if matrix.steps and host.server.speculative is None:
            raise InputError(
                f"step counts are asked for and server.speculative of host '{host.name}' is empty",
                where="--steps",
                hint="write server.speculative.draft_model_path into the inventory",
            )
    files = [Path(name) for name in (request.more.get("file"), request.vars.get("prompts")) if name]
    if request.more.get("array"):
        files += [find_playbook(request.project, name) for name in ("array", "array-job")]
    record = record_of(request, "bench", book, selection, files)
    job = Job(
        matrix,
        book_of,
        client,
        concurrency,
        ranked=request.vars.get("request_rate") is None,
        separate=bool(request.more.get("separate_loads")),
        anyway=bool(request.more.get("anyway")),
        keep=bool(request.more.get("keep")),
    )

    if request.more.get("spread") and selection.server is not None:
        what = f"{selection.server.server} is one server, and one server is nothing to spread over"
        raise InputError(what, where="--spread", hint="leave it out")
    array = None
    if request.more.get("array"):
        spread, keep = bool(request.more.get("spread")), job.keep
        refuse_array(selection.hosts, shares=client.shares, spread=spread, keep=keep)
        array = Array(selection, *_array_books(request, shared, client, probed), _at_once(request.more["array"]))
        job = replace(job, apart=True)
    if request.more.get("spread"):
        refuse_spread(selection.hosts, shares=client.shares)
        together = replace(request, manner=Manner(len(selection.hosts), None, "continue"))
        _spread(together, selection, outcome, say, job, book, record)
        return

    def work(context: Context) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def tell(result: dict[str, Any]) -> None:
            found.update({**result, "jobs": array.rows} if array else result)
            outcome.hosts[context.host.name].update(context.bundle.masker.mapping(found))

        measure_host(context, job, tell, array.loads if array else None)
        return found

    run_on_hosts(
        in_batches(request, book), selection, outcome, say, work, playbook=book.path, record=record, together=True
    )


def _array_books(
    request: Request, shared: Mapping[str, Any], client: Client, probed: bool
) -> tuple[Playbook, Callable[[Load], Playbook]]:
    """The playbook that makes the cluster ready, and that of the job of each load."""

    def read(name: str, variables: Mapping[str, Any]) -> Playbook:
        return load_playbook(find_playbook(request.project, name), actions=ACTIONS, extra_vars=variables)

    def job_of(load: Load) -> Playbook:
        return read("array-job", {**shared, **load_vars(load, client, probed=probed)})

    job_of(Load(None, Variation()))  # what is wrong with it is said before anything is contacted
    return read("array", {}), job_of


def _at_once(given: Any) -> int | None:
    """Of `--array [N]`: None where no number was given."""
    return None if given is True else int(given)


def _spread(
    request: Request,
    selection: Selection,
    outcome: Outcome,
    say: Say,
    job: Job,
    book: Playbook,
    record: Mapping[str, Any],
) -> None:
    """All hosts at once: each waits for the others before its first load, so none can wait for its turn."""
    names, past = [host.name for host in selection.hosts], request.past
    spreading = Spreading(names, job.concurrency, _how_on(past))

    def work(context: Context) -> dict[str, Any]:
        found: dict[str, Any] = {}
        spreading.measure(context, job, found)
        return found

    try:
        run_on_hosts(
            request,
            selection,
            outcome,
            say,
            work,
            playbook=book.path,
            record=record,
            whole=True,
            over=spreading.deal.leave,
        )
    finally:
        spread = spreading.merged()
        if spread is not None and outcome.run is not None and outcome.bundle is not None and not request.check:
            from eaglelab.report import write  # here, so that no other command waits for it

            bundle = Bundle(outcome.bundle, outcome.run, "", masker=outcome.masker)
            bundle.text("measurements.json", to_json(spread.measured))
            bundle.json("spread.json", spread.to_json())
            outcome.more["spread"] = {**spread.to_json(), "left": [load.name for load in spreading.deal.left]}
            say.show(measurement_table(spread.measured, ranked=job.ranked))
            say.show(spread_table(spread))
            write.write_report(outcome.bundle, None, say.line)


def _how_on(past: PastRun | None) -> str:
    """What to type where hosts are not equal, or not any more."""
    if past is None:
        return "name equal hosts, or leave out --spread: each host then measures all settings"
    hosts = ",".join(past.hosts)
    back = f"invoke rollback --host {hosts} puts back what is left of it"
    return f"make them equal again, then {past.command_line()}; or begin a new run with equal hosts: {back}"


def matrix_of(more: Mapping[str, Any]) -> Matrix:
    """The settings that a command line asks for: `file`, or `steps`, `no_baseline`, `env`, `server_args`, `combine`.

    Raises InputError where both are given.
    """
    own: Sequence[str] = ("steps", "env", "server_args", "combine")
    if more.get("file"):
        if any(more.get(name) for name in own):
            raise InputError(
                "a sweep file says all that is varied",
                where="--file",
                hint="leave out --steps, --env, --server-arg and --combine",
            )
        matrix = load_sweep(Path(more["file"]))
        return replace(matrix, baseline=matrix.baseline and not more.get("no_baseline"))
    return Matrix(
        steps=tuple(more.get("steps") or DEFAULT_STEPS),
        baseline=not more.get("no_baseline"),
        env=more.get("env") or {},
        flags=more.get("server_args") or {},
        combine=more.get("combine") or "cross",
    )
