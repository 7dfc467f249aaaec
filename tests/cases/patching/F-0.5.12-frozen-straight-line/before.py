import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class FrozenKVMTPWorker:
    def forward_batch_generation(self, batch):
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            return self.forward_target_extend(batch)

        self.trace(batch.reqs, "draft_start")
        with moe_context():
            verify_input = self.draft(batch)

        batch.spec_info = verify_input
        logits_output, verify_output, can_run_cuda_graph = self.verify(batch)

        with moe_context():
            if verify_output.draft_extend_input is not None:
                self.forward_draft_extend_after_decode(batch)

        return dict(logits=logits_output, can_run_cuda_graph=can_run_cuda_graph)
