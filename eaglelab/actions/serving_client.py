"""SGLang's own client as a process of the host: what it gets, what it says, and why it did not start."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eaglelab.actions.base import Action, NoArguments
from eaglelab.actions.drive import run_command
from eaglelab.context import Context
from eaglelab.errors import HostError
from eaglelab.server.bench_serving import MODULE
from eaglelab.server.command import server_env

__all__ = ["BUILT_IN", "CHECK_BENCH_SERVING", "client_failed", "last_lines", "load_file", "run_client"]

BUILT_IN = "use the built-in client, which needs nothing there: leave out --client"
_LAST_LINES = 6


def run_client(
    context: Context, name: str, command: Sequence[str], tell: Callable[[float], None]
) -> tuple[Mapping[str, Any], str]:
    """Its end (see `run_command`) and its output. `tell` is given the seconds so far, twice a second."""
    began = context.clock()
    end = run_command(context, name, command, _environment(context), lambda *_: tell(context.clock() - began))
    _, output = context.client.call_bytes("read", path=load_file(context, name, "out"))
    return end, output.decode(errors="replace")


def load_file(context: Context, name: str, what: str) -> str:
    """A file of the load `name`, on the host."""
    return f"{context.facts['state']}/runs/{context.run}/load/{name}.{what}"


def _environment(context: Context) -> dict[str, str]:
    """Of its process only: the key is in no argument. A proxy is no way to a server of the same machine."""
    near = dict.fromkeys(("NO_PROXY", "no_proxy"), context.server_address)
    key = {} if context.api_key is None else {"OPENAI_API_KEY": context.api_key}
    return {**server_env(context.host), **near, **key}


def client_failed(context: Context, end: Mapping[str, Any], output: str) -> HostError:
    """Its last lines, or the one that says which module it lacks."""
    where = context.host.name
    lacking = re.search(r"^ModuleNotFoundError: No module named '([^']+)'", output, re.M)
    if lacking is not None:
        module = lacking[1].partition(".")[0]
        return HostError(
            f"{MODULE} does not start there: its Python has no module {lacking[1]}",
            where=where,
            hint=f"pip install {module} on the host; or {BUILT_IN}" if module != "sglang" else BUILT_IN,
        )
    how = f"signal {end['signal']}" if end["signal"] else f"code {end['code']}"
    return HostError(f"{MODULE} ended with {how}: {last_lines(output)}", where=where, hint=BUILT_IN)


def last_lines(output: str) -> str:
    """What a person needs of it to see why it ended, in one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " / ".join(lines[-_LAST_LINES:]) or "it said nothing"


def _starts(context: Context, _: NoArguments) -> dict[str, Any]:
    """It imports all that it needs before it looks at its arguments: seconds, where a load of the server takes minutes.

    Once a run: asked again, the host answers with what came of it the first time.
    """

    def tell(seconds: float) -> None:
        context.say.progress(f"{MODULE} --help: {seconds:.0f} s")

    command = [context.host.python, "-m", MODULE, "--help"]
    end, output = run_client(context, f"bench-serving-help-{context.resumed}", command, tell)
    if end["code"] != 0:
        raise client_failed(context, end, output)
    return {}


def _would_start(context: Context, _: NoArguments) -> dict[str, Any]:
    context.say.line(f"  would run {MODULE} --help there")
    return {}


CHECK_BENCH_SERVING = Action(
    "check_bench_serving",
    NoArguments,
    "see that SGLang's own client starts on the host",
    _starts,
    _would_start,
    nodes="first",
)
