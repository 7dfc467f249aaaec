"""Prints one line a verify with the shapes that decide its cost. Put next to the worker by the verify-shapes patch.

Stands alone: standard library, the host's own torch, Python 3.8 syntax. Nothing in here waits for the GPU: what is not
on the CPU already is printed as `-`. An exception switches it off and says so once; the server goes on.
"""
# eaglelab:verify-shapes - by this line a file under this name is known to have come with the patch

import os
import sys

__all__ = ["Shapes", "from_environment", "shapes"]


class Shapes:
    """`out` takes one line; `torch` is the host's, imported at the first verify where none is given."""

    def __init__(self, out=None, torch=None):
        self._out = out or _log
        self._torch = torch
        self._rank = None  # set at the first verify
        self._active = True

    def verify(self, worker, batch):
        """A verify of `batch` is about to be launched."""
        if not self._active:
            return
        try:
            if self._rank is None:
                self._start(worker)
            if self._rank == 0:  # every rank of a tensor-parallel server sees the same shapes
                self._out("EAGLE3_SHAPES " + " ".join("%s=%s" % item for item in _measured(worker, batch).items()))
        except Exception as error:
            self._active = False
            self._out("EAGLE3_SHAPES off: %s: %s" % (type(error).__name__, error))

    def _start(self, worker):
        if self._torch is None:
            import torch

            self._torch = torch
        distributed = self._torch.distributed
        self._rank, world = 0, 1
        if distributed.is_available() and distributed.is_initialized():
            self._rank, world = distributed.get_rank(), distributed.get_world_size()
        self._out("EAGLE3_SHAPES active: class=%s rank=%d/%d" % (type(worker).__name__, self._rank, world))


def _measured(worker, batch):
    """`batch_size` in requests; the others in tokens. `context_*` is what the requests hold before this verify."""
    tokens = getattr(worker, "speculative_num_draft_tokens", None)
    if tokens is None:  # up to 0.4.7
        tokens = worker.server_args.speculative_num_draft_tokens
    total, on_cpu = getattr(batch, "seq_lens_sum", None), getattr(batch, "seq_lens_cpu", None)
    longest = None
    if str(getattr(on_cpu, "device", "")) == "cpu" and on_cpu.shape[0]:
        longest = int(on_cpu.max())
    return {
        "batch_size": batch.seq_lens.shape[0],
        "draft_tokens": tokens,
        "context_sum": total if isinstance(total, int) else "-",
        "context_max": "-" if longest is None else longest,
    }


def _log(text):
    # One write, so that ranks do not tear each other's lines.
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def from_environment(environ):
    """The printer that EAGLE3_SHAPES asks for; None where it is unset or 0, which is what a worker then tests."""
    return None if environ.get("EAGLE3_SHAPES", "") in ("", "0") else Shapes()


shapes = from_environment(os.environ)
