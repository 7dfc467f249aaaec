"""The real worker of the release on the simulated GPU.

The class comes from the package's own file, as it is on this host. Its entry function runs unchanged; what it calls
(draft, verify, extend, prefill) is replaced on the instance by launches on the stream, with the synchronisations of
the original in their places.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from .adaptive import controller_of
from .args import Release, ServerArgs
from .batch import Batch, Result
from .device import Gpu
from .gpu import GpuTensor
from .request import Request
from .shape import bound_names, entry_name, source_of, values_for
from .stubs import Stub, StubObject

__all__ = ["SpecWorker"]


def _no_context(*_args: Any, **_kwargs: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


class SpecWorker:
    """An instance of the real worker class, made without its `__init__`, that decodes on a simulated GPU.

    Raises:
        AttributeError, ImportError, SyntaxError: the file on this host does not hold such a worker.
    """

    def __init__(self, module: str, class_name: str, gpu: Gpu, args: ServerArgs, release: Release) -> None:
        self._gpu = gpu
        self._release = release
        self.overlap = class_name.endswith("V2") and not args.disable_overlap_schedule
        self._is_v2 = class_name.endswith("V2")
        loaded = importlib.import_module(f"sglang.srt.speculative.{module}")
        worker_type = getattr(loaded, class_name)
        entry = entry_name(worker_type)
        self._source = source_of(worker_type, entry)
        self.instance = object.__new__(worker_type)
        self.run: Callable[..., Any] = getattr(self.instance, entry)
        self._correct: list[int] = []
        self._verify_done = 0.0
        self.instance.__dict__.update(
            server_args=StubObject(**args.as_dict()),
            topk=args.speculative_eagle_topk,
            speculative_num_steps=args.speculative_num_steps,
            speculative_num_draft_tokens=args.speculative_num_draft_tokens,
            speculative_algorithm=Stub(),
            device="cuda",
            gpu_id=0,
            tp_rank=0,
            enable_nan_detection=False,
            plan_stream=None,
            model_runner=Stub(),
            draft_tp_context=_no_context,
            verify=self._verify,
            **(self._v2_parts() if self._is_v2 else self._v1_parts()),
        )
        self.instance.adaptive_controller = controller_of(loaded, self.instance, args, release)

    @property
    def steps(self) -> int:
        """K of the next cycle; the adaptive controller may change it between cycles."""
        return int(self.instance.speculative_num_steps)

    @property
    def draft_tokens(self) -> int:
        return int(self.instance.speculative_num_draft_tokens)

    def _v1_parts(self) -> dict[str, Any]:
        return {
            "target_worker": StubObject(forward_batch_generation=self._target_prefill),
            "draft": self._draft,
            "forward_draft_decode": self._draft_step,
            "forward_draft_extend_after_decode": self._extend,
            "forward_extend_after_decode": self._extend,
            "forward_target_extend": self._target_prefill,
            "forward_draft_extend": self._prefill_extend,
        }

    def _v2_parts(self) -> dict[str, Any]:
        draft_worker = StubObject(
            draft=self._draft,
            draft_tp_context=_no_context,
            draft_runner=StubObject(),
            _draft_extend_for_decode=self._extend,
            _draft_extend_for_prefill=self._prefill_extend,
        )
        target_worker = StubObject(forward_batch_generation=self._target_prefill, model_config=StubObject())
        # properties over the underscored ones: of the class up to 0.5.12, of its (stubbed) base after
        return {
            "draft_worker": draft_worker,
            "_draft_worker": draft_worker,
            "target_worker": target_worker,
            "_target_worker": target_worker,
            "_build_trivial_verify_input": lambda _batch: StubObject(is_verify_input=lambda: True),
        }

    # What the entry calls ---------------------------------------------------------------------------------------

    def _draft(self, batch: Batch, *_args: Any, **_kwargs: Any) -> StubObject:
        if not self._is_v2:
            self._gpu.stream.synchronize()  # `sum(seq_lens).item()` in v1: the re-extend before is drained here
        self._gpu.run(self._gpu.costs.draft(self.steps, len(batch)), "draft")
        verify_input = StubObject(is_verify_input=lambda: True)
        names = bound_names(self._source, "draft")
        return values_for(names, dict.fromkeys(names, verify_input)) if len(names) > 1 else verify_input

    def _draft_step(self, batch: Batch) -> None:
        """One draft forward: up to 0.4.2.post1 the entry itself runs the loop."""
        self._gpu.run(self._gpu.costs.draft(2, len(batch)), "draft")

    def _verify(self, batch: Batch, *_args: Any, **_kwargs: Any) -> Any:
        self._correct = [request.draw(self._gpu.acceptance, self.steps) for request in batch.reqs]
        self._gpu.run(self._gpu.costs.verify(self.steps, len(batch)), "verify")
        return self._verified_v2() if self._is_v2 else self._verified_v1(batch)

    def _verified_v1(self, batch: Batch) -> Any:
        self._gpu.stream.synchronize()  # `accept_index.tolist()` in v1
        left = [max(0, r.limit(self._gpu.acceptance.seed) - len(r.output)) for r in batch.reqs]
        self._correct = [max(0, min(drafts + 1, rest) - 1) for drafts, rest in zip(self._correct, left, strict=True)]
        unfinished = sum(drafts + 1 < rest for drafts, rest in zip(self._correct, left, strict=True))
        lengths = list(self._correct)
        verified: StubObject | None = StubObject(shape=(unfinished,))
        if not unfinished and "verified_id is not None" in self._source:
            verified = None
        batch.__dict__["spec_info"] = StubObject(verified_id=verified)
        output = StubObject(
            accept_length_per_req_cpu=lengths,
            num_accepted_drafts_per_req_cpu=lengths,
            num_correct_drafts_per_req_cpu=lengths,
            verified_id=verified,
            draft_input=StubObject(verified_id=verified),
            draft_extend_input=StubObject(input_ids=verified),
        )
        known = {
            "verify_output": output,
            "next_draft_input": StubObject(verified_id=verified),
            "accept_length_cpu": lengths,
            "verified_id": verified,
            "can_run_cuda_graph": True,
            "model_worker_batch": batch,
        }
        return values_for(bound_names(self._source, "verify"), known)

    def _verified_v2(self) -> StubObject:
        stream = self._gpu.stream
        self._verify_done = stream.free_at
        tokens = [drafts + 1 for drafts in self._correct]
        return StubObject(
            accept_lens=GpuTensor(tokens, self._gpu.clock, stream.free_at),
            next_token_ids=Stub(),
            new_seq_lens=StubObject(shape=(len(tokens),)),
            can_run_cuda_graph=True,
        )

    def _extend(self, batch: Batch, *_args: Any, **_kwargs: Any) -> StubObject:
        self._gpu.run(self._gpu.costs.extend(len(batch)), "extend")
        return StubObject()

    def _target_prefill(self, batch: Batch, *_args: Any, **_kwargs: Any) -> Any:
        self._gpu.run(self._gpu.costs.prefill(sum(request.prompt_tokens for request in batch.reqs)))
        if self._is_v2:
            return StubObject(logits_output=StubObject(), next_token_ids=Stub())
        names = bound_names(self._source, "forward_target_extend")
        names = names or bound_names(self._source, "target_worker.forward_batch_generation")
        return values_for(names, {"can_run_cuda_graph": False})

    def _prefill_extend(self, *_args: Any, **_kwargs: Any) -> StubObject:
        self._gpu.run(self._gpu.costs.extend(1), "extend")
        return StubObject()

    # What the scheduler calls -----------------------------------------------------------------------------------

    def prefill(self, requests: Sequence[Request]) -> None:
        """Run the entry's prefill branch and wait for it."""
        self.run(Batch(requests, extend=True))
        for request in requests:
            request.position = 1
        self._gpu.stream.synchronize()

    def decode(self, requests: Sequence[Request]) -> Result:
        """Run the entry's decode branch. It blocks the host where the worker does, and nowhere else."""
        output = self.run(Batch(requests, extend=False))
        correct = self._correct
        if not self._is_v2:
            return Result([drafts + 1 for drafts in correct], correct, lambda: None)
        return self._copied(output, correct)

    def _copied(self, output: Any, correct: list[int]) -> Result:
        """What the scheduler does with a v2 result: replace the tensor by its copy, note when the copy is done.

        Once that is read, it keeps the list on the result and, from 0.5.12 on, hands that very list to the worker.
        """
        gpu = self._gpu
        done = importlib.import_module("torch").cuda.Event()
        output.accept_lens = output.accept_lens.to("cpu", non_blocking=True)
        gpu.run(float(gpu.costs.gpu["copy"]))
        output.copy_done = done
        done.record()

        def wait() -> None:
            done.synchronize()
            if self._release < (0, 5, 12):
                output.accept_length_per_req_cpu = correct
                return
            output.num_correct_drafts_per_req_cpu = correct
            size = {"batch_size": len(correct)} if self._release >= (0, 5, 13) else {}
            self.instance.on_verify_complete_cpu(correct, **size)

        return Result([drafts + 1 for drafts in correct], correct, wait)

    def before_next(self) -> None:
        """The host between two cycles of the overlapping scheduler: it waits for the verify, then prepares."""
        self._gpu.clock.wait_until(self._verify_done)
        self._gpu.clock.advance(self._gpu.costs.host["overlap"])

    def after_cycle(self) -> None:
        """The host between two cycles without overlap."""
        self._gpu.clock.advance(self._gpu.costs.host["schedule"])
