import logging
from contextlib import nullcontext as moe_context

try:  # eaglelab:eagle3-profile
    from sglang.srt.speculative import eaglelab_probe as _eaglelab  # eaglelab:eagle3-profile
except Exception:  # eaglelab:eagle3-profile
    class _eaglelab: probe = None  # eaglelab:eagle3-profile
logger = logging.getLogger(__name__)


class EAGLEWorkerV2:
    def forward_batch_generation(self, batch):
        """One pass."""
        _e3 = _eaglelab.probe  # eaglelab:eagle3-profile
        if _e3 is not None: _e3.enter()  # eaglelab:eagle3-profile
        if batch.is_extend_in_batch:
            return self.target_worker.forward_batch_generation(batch)
        elif batch.forward_mode.is_decode():
            if _e3 is not None: _e3.begin(self, batch)  # eaglelab:eagle3-profile
            verify_input = self.draft_worker.draft(batch)  # first
            if _e3 is not None: _e3.mark(1)  # eaglelab:eagle3-profile
            result = self.verify(batch, verify_input)

            # a comment that belongs to what follows

            if _e3 is not None: _e3.mark(2)  # eaglelab:eagle3-profile
            self.draft_worker._draft_extend_for_decode(batch, result)
            # so does this one
            if _e3 is not None: _e3.mark(3)  # eaglelab:eagle3-profile
            if _e3 is not None: _e3.end(result, None)  # eaglelab:eagle3-profile
            return result
        return None
