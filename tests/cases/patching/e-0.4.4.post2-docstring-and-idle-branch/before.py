import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class EAGLEWorker:
    def forward_batch_speculative_generation(self, batch):
        """Run speculative decoding forward.

        Returns:
            if verify says so, the accepted tokens
        """
        if batch.forward_mode.is_decode():
            with self.draft_tp_context(self.draft_model_runner.tp_group):
                spec_info, to_free = self.draft(batch)
            logits_output, verify_output, worker_batch = self.verify(
                batch, spec_info
            )

            # Freed here to hide launch overhead.
            self.allocator.free(to_free)

            # If it is None, all requests are finished
            if batch.spec_info.verified_id is not None:
                with self.draft_tp_context(self.draft_model_runner.tp_group):
                    self.forward_draft_extend_after_decode(batch)
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
