import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class EAGLEWorker:
    def forward_batch_speculative_generation(self, batch):
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            return self.forward_target_extend(batch), 0
        else:
            with self.draft_tp_context(self.draft_model_runner.tp_group):
                spec_info = self.draft(batch)
            logits_output, verify_output, worker_batch, can_run_cuda_graph = (
                self.verify(batch, spec_info)
            )

            if self.check_forward_draft_extend_after_decode(batch):
                with self.draft_tp_context(self.draft_model_runner.tp_group):
                    self.forward_draft_extend_after_decode(
                        batch,
                    )
            return (
                logits_output,
                verify_output.verified_id,
                can_run_cuda_graph,
            )
