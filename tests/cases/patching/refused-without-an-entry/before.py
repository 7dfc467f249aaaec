import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class EAGLEWorkerV2:
    def forward(self, batch):
        return self.verify(batch)
