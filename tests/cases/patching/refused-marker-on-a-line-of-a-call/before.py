import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class EAGLEWorkerV2:
    def forward_batch_generation(self, batch):
        if batch.forward_mode.is_extend():
            return self.target_worker.forward_batch_generation(batch)
        else:
            verify_input = self.draft_worker.draft(batch)
            batch_output = self.verify(
                batch  # eaglelab:eagle3-profile
            )
            self.draft_worker._draft_extend_for_decode(batch, batch_output)
            return batch_output
