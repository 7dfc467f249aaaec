import logging
from contextlib import nullcontext as moe_context

try:  # eaglelab:verify-shapes
    from sglang.srt.speculative.eaglelab_shapes import shapes as _shapes  # eaglelab:verify-shapes
except Exception:  # eaglelab:verify-shapes
    _shapes = None  # eaglelab:verify-shapes
logger = logging.getLogger(__name__)


class EAGLEWorkerV2:
    def forward_batch_generation(self, batch):
        if batch.forward_mode.is_extend():
            return self.target_worker.forward_batch_generation(batch)
        else:
            verify_input = self.draft_worker.draft(batch)
            if _shapes is not None: _shapes.verify(self, batch)  # eaglelab:verify-shapes
            batch_output = self.verify(batch)
            self.draft_worker._draft_extend_for_decode(batch, batch_output)
            return batch_output
