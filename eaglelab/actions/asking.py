"""What the running server says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eaglelab.context import Context

__all__ = ["server_info", "server_metrics"]

_TIMEOUT_S = 10.0


def server_info(context: Context) -> Mapping[str, Any] | None:
    """Asked anew each time, since its averages run on: the new endpoint first, then the one of older releases.

    None where neither answers with an object.
    """
    bodies = (_get(context, path) for path in ("/server_info", "/get_server_info"))
    return next((body for body in bodies if isinstance(body, dict)), None)


def server_metrics(context: Context) -> str | None:
    """The text of /metrics; None where the server does not offer it."""
    body = _get(context, "/metrics")
    return body if isinstance(body, str) else None


def _get(context: Context, path: str) -> Any:
    answer = context.client.call(
        "http",
        host=context.server_address,
        port=context.port,
        method="GET",
        path=path,
        body=None,
        key=context.api_key,
        timeout=_TIMEOUT_S,
    )
    return answer.get("body") if answer.get("status") == 200 else None
