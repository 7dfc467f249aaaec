import logging
from contextlib import nullcontext as moe_context

try:  # eaglelab:eagle3-profile
    from sglang.srt.speculative import eaglelab_probe as _eaglelab  # eaglelab:eagle3-profile
except Exception:  # eaglelab:eagle3-profile
    class _eaglelab: probe = None  # eaglelab:eagle3-profile
logger = logging.getLogger(__name__)


class EAGLEWorker:
    def forward_batch_speculative_generation(self, batch):
        _e3 = _eaglelab.probe  # eaglelab:eagle3-profile
        if _e3 is not None: _e3.enter()  # eaglelab:eagle3-profile
        if batch.forward_mode.is_decode():
            if _e3 is not None: _e3.begin(self, batch)  # eaglelab:eagle3-profile
            spec_info: object = self.draft(batch)
            if _e3 is not None: _e3.mark(1)  # eaglelab:eagle3-profile
            (
                draft_input,
                logits,
                verified,
                self.finish_extend_len,
                accept_length_cpu,
                worker_batch,
            ) = self.verify(batch, spec_info)
            if _e3 is not None: _e3.mark(2)  # eaglelab:eagle3-profile
            batch.spec_info = draft_input
            if batch.spec_info.verified_id is not None:
                self.forward_draft_extend_after_decode(batch)
            if _e3 is not None: _e3.mark(3)  # eaglelab:eagle3-profile
            if _e3 is not None: _e3.end(accept_length_cpu, None)  # eaglelab:eagle3-profile
            return logits, verified, worker_batch, sum(accept_length_cpu)
        else:
            return self.forward_target_extend(batch)
