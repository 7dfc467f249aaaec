import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class EAGLEWorkerV2:
    def forward_batch_generation(self, batch):
        self.draft(batch)
        out = self.verify(batch)
        return out


class Other:
    def forward_batch_generation(self, batch):
        self.draft(batch)
        out = self.verify(batch)
        return out
