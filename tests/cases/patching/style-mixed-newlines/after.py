import logging
from contextlib import nullcontext as moe_context

try:  # eaglelab:eagle3-profile
    from sglang.srt.speculative import eaglelab_probe as _eaglelab  # eaglelab:eagle3-profile
except Exception:  # eaglelab:eagle3-profile
    class _eaglelab: probe = None  # eaglelab:eagle3-profile
logger = logging.getLogger(__name__)


class EAGLEWorkerV2:
    def forward_batch_generation(self, batch):
        _e3 = _eaglelab.probe  # eaglelab:eagle3-profile
        if _e3 is not None: _e3.enter()  # eaglelab:eagle3-profile
        if batch.forward_mode.is_extend():
            return self.target_worker.forward_batch_generation(batch)
        else:
            if _e3 is not None: _e3.begin(self, batch)  # eaglelab:eagle3-profile
            verify_input = self.draft_worker.draft(batch)
            if _e3 is not None: _e3.mark(1)  # eaglelab:eagle3-profile
            batch_output = self.verify(batch)
            if _e3 is not None: _e3.mark(2)  # eaglelab:eagle3-profile
            self.draft_worker._draft_extend_for_decode(batch, batch_output)
            if _e3 is not None: _e3.mark(3)  # eaglelab:eagle3-profile
            if _e3 is not None: _e3.end(batch_output, None)  # eaglelab:eagle3-profile
            return batch_output
