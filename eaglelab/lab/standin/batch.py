"""What goes into the worker and what comes out: the batch as SGLang's worker sees it, and its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .request import Request
from .stubs import StubObject

__all__ = ["Batch", "Result"]


class _Mode:
    def __init__(self, extend: bool) -> None:
        self._extend = extend

    def is_extend(self, *_args: Any, **_kwargs: Any) -> bool:
        return self._extend

    def is_decode(self) -> bool:
        return not self._extend

    def __getattr__(self, name: str) -> Callable[[], bool]:
        if not name.startswith("is_"):
            raise AttributeError(name)
        return lambda: False


class Batch(StubObject):
    """What the worker gets: `ScheduleBatch` (or `ModelWorkerBatch`) as far as its entry looks at it."""

    def __init__(self, reqs: Sequence[Request], extend: bool) -> None:
        super().__init__(
            reqs=list(reqs),
            forward_mode=_Mode(extend),
            is_extend_in_batch=extend,
            spec_info=StubObject(is_draft_input=lambda: True),
            seq_lens=StubObject(shape=(len(reqs),)),
            seq_lens_sum=sum(request.prompt_tokens + len(request.output) for request in reqs),
            sampling_info=StubObject(),
        )

    def batch_size(self) -> int:
        return len(self.reqs)

    def is_empty(self) -> bool:
        return not self.reqs

    def __len__(self) -> int:
        return len(self.reqs)


class Result:
    """A launched batch. `tokens` is per request, bonus included, and may be read after `wait`."""

    def __init__(self, tokens: list[int], correct: list[int], wait: Callable[[], None]) -> None:
        self.tokens, self.correct, self.wait = tokens, correct, wait
