import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class EAGLEWorkerV2:
    def forward_batch_generation(self, batch):
        if self.verify(batch):
            return None
        return self.draft(batch)
