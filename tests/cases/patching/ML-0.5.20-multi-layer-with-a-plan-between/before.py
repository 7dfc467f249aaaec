import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class MultiLayerEagleWorkerV2:
    def forward_batch_generation(self, batch, on_publish=None):
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            return self.target_worker.forward_batch_generation(batch)
        else:
            verify_input = self.draft_worker.draft(batch)
            plan = self.draft_worker._draft_extend_plan_for_decode(batch)
            batch.spec_info = verify_input
            batch_output = self.verify(batch)
            if on_publish is not None:
                on_publish(batch_output.new_seq_lens)
            self.draft_worker._draft_extend_for_decode(
                batch, batch_output, plan
            )
            return batch_output
