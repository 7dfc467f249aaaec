"""What NCCL (from 2.24 on, as with PyTorch 2.7 and newer) does with `NCCL_ALGO` where that leaves the gathering of logits no way."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CaptureError", "capture"]

_GATHERS = {"ring", "nvls", "pat", "collnetdirect"}
_INVALID = "invalid usage (run with NCCL_DEBUG=WARN for details)"
_ADVICE = """Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
2. set --cuda-graph-max-bs to a smaller value (e.g., 16)
3. disable torch compile by not using --enable-torch-compile
4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)
Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose """
"""SGLang's, whatever it was that failed."""


class CaptureError(Exception):
    """A graph could not be captured."""


def capture(environ: Mapping[str, str], ranks: int) -> None:
    """What a capture asks of NCCL: all-gather, and nothing else is looked at. Raises CaptureError, in SGLang's words, of a RuntimeError in NCCL's."""
    try:
        _gather_logits(environ, ranks)
    except RuntimeError as error:
        raise CaptureError(f"Capture cuda graph failed: {error}\n{_ADVICE}") from error


def _gather_logits(environ: Mapping[str, str], ranks: int) -> None:
    value = environ.get("NCCL_ALGO", "").lower()
    entries = [entry.rpartition(":") for entry in value.split(";") if entry]
    chosen = [algorithms for function, _, algorithms in entries if function in ("", "allgather")]
    if ranks == 1 or not chosen:
        return
    named = set(chosen[-1].lstrip("^").split(","))
    if not (_GATHERS - named if chosen[-1].startswith("^") else _GATHERS & named):
        raise RuntimeError(f"NCCL error: {_INVALID}")
