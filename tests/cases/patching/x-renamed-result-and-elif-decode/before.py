import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class EAGLEWorkerV2:
    def forward_batch_generation(self, batch):
        """One pass."""
        if batch.is_extend_in_batch:
            return self.target_worker.forward_batch_generation(batch)
        elif batch.forward_mode.is_decode():
            verify_input = self.draft_worker.draft(batch)  # first
            result = self.verify(batch, verify_input)

            # a comment that belongs to what follows

            self.draft_worker._draft_extend_for_decode(batch, result)
            # so does this one
            return result
        return None
