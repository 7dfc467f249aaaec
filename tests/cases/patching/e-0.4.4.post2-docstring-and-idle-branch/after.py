import logging
from contextlib import nullcontext as moe_context

try:  # eaglelab:eagle3-profile
    from sglang.srt.speculative import eaglelab_probe as _eaglelab  # eaglelab:eagle3-profile
except Exception:  # eaglelab:eagle3-profile
    class _eaglelab: probe = None  # eaglelab:eagle3-profile
logger = logging.getLogger(__name__)


class EAGLEWorker:
    def forward_batch_speculative_generation(self, batch):
        """Run speculative decoding forward.

        Returns:
            if verify says so, the accepted tokens
        """
        _e3 = _eaglelab.probe  # eaglelab:eagle3-profile
        if _e3 is not None: _e3.enter()  # eaglelab:eagle3-profile
        if batch.forward_mode.is_decode():
            if _e3 is not None: _e3.begin(self, batch)  # eaglelab:eagle3-profile
            with self.draft_tp_context(self.draft_model_runner.tp_group):
                spec_info, to_free = self.draft(batch)
            if _e3 is not None: _e3.mark(1)  # eaglelab:eagle3-profile
            logits_output, verify_output, worker_batch = self.verify(
                batch, spec_info
            )

            # Freed here to hide launch overhead.
            if _e3 is not None: _e3.mark(2)  # eaglelab:eagle3-profile
            self.allocator.free(to_free)

            # If it is None, all requests are finished
            if batch.spec_info.verified_id is not None:
                with self.draft_tp_context(self.draft_model_runner.tp_group):
                    self.forward_draft_extend_after_decode(batch)
            if _e3 is not None: _e3.mark(3)  # eaglelab:eagle3-profile
            if _e3 is not None: _e3.end(verify_output, None)  # eaglelab:eagle3-profile
            return (
                logits_output,
                verify_output.verified_id,
                worker_batch.bid,
                sum(verify_output.accept_length_per_req_cpu),
            )
        elif batch.forward_mode.is_idle():
            return self.target_worker.forward_batch_generation(batch)
        else:
            return self.forward_target_extend(batch)
