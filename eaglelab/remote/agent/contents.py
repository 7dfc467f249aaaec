"""The bytes that come with a request: taken apart, checked, and compiled before they may go anywhere."""

from __future__ import annotations

import warnings
from typing import Any

from eaglelab.remote.agent.files import sha256
from eaglelab.remote.agent.wire import AgentError

__all__ = ["must_compile", "parse_contents"]


def must_compile(path: str, data: bytes) -> None:
    """Raises AgentError `does-not-compile`; the Python that runs this is the server's."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what SGLang's own lines are warned about is nothing new
            compile(data, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise AgentError(
            "does-not-compile", "the server's Python cannot compile the patched %s: %s" % (path, error), path=path
        ) from error


def parse_contents(files: list[dict[str, Any]], data: bytes) -> dict[str, bytes]:
    """Path -> bytes from the sizes in `files` and the raw bytes of the frame, checked against each sha256."""
    contents: dict[str, bytes] = {}
    at = 0
    for file in files:
        piece = data[at : at + file["size"]]
        at += file["size"]
        if sha256(piece) != file["sha256"]:
            raise AgentError("transfer-damaged", "the bytes for %s arrived damaged" % file["path"], path=file["path"])
        contents[file["path"]] = piece
    return contents
