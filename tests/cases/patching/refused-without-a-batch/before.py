import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class EAGLEWorkerV2:
    def forward_batch_generation(self):
        self.draft()
        out = self.verify()
        return out
