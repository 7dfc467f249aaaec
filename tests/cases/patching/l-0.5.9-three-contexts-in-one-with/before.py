import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class EAGLEWorker:
    def forward_batch_generation(self, batch):
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            return self.forward_target_extend(batch)
        else:
            with self.draft_tp_context(
                self.draft_model_runner.tp_group
            ), moe_context(), moe_context():
                spec_info = self.draft(batch)
            logits_output, verify_output, worker_batch, can_run_cuda_graph = (
                self.verify(batch, spec_info)
            )

            with self.draft_tp_context(
                self.draft_model_runner.tp_group
            ), moe_context(), moe_context():
                # NOTE: slow when DP attention is enabled.
                if (
                    self.server_args.enable_dp_attention
                    or batch.spec_info.verified_id.shape[0] > 0
                ):
                    # decode is not finished
                    self.forward_draft_extend_after_decode(batch)

            return dict(
                tokens=verify_output.verified_id,
                can_run_cuda_graph=can_run_cuda_graph,
            )

    def check_forward_draft_extend_after_decode(self, batch):
        return True
