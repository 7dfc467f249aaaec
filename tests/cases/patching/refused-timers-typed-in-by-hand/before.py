import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class EAGLEWorkerV2:
    def forward_batch_generation(self, batch):
        if batch.forward_mode.is_decode():
            t0 = time.perf_counter()
            verify_input = self.draft_worker.draft(batch)
            batch_output = self.verify(batch)
            print("EAGLE3_PROF", time.perf_counter() - t0)
            return batch_output
        else:
            return self.target_worker.forward_batch_generation(batch)
