import logging
from contextlib import nullcontext as moe_context

try:  # eaglelab:eagle3-profile
    from sglang.srt.speculative import eaglelab_probe as _eaglelab  # eaglelab:eagle3-profile
except Exception:  # eaglelab:eagle3-profile
    class _eaglelab: probe = None  # eaglelab:eagle3-profile
logger = logging.getLogger(__name__)


class EAGLEWorker:
    def forward_draft_decode(self, batch):
        return self.model_runner.forward(batch)

    def forward_batch_speculative_generation(self, batch):
        _e3 = _eaglelab.probe  # eaglelab:eagle3-profile
        if _e3 is not None: _e3.enter()  # eaglelab:eagle3-profile
        if batch.forward_mode.is_decode():
            if _e3 is not None: _e3.begin(self, batch)  # eaglelab:eagle3-profile
            previous = batch.spec_info
            self._swap_mem_pool(batch, self.model_runner)
            for _ in range(self.server_args.speculative_num_steps):
                self.forward_draft_decode(batch)
            if _e3 is not None: _e3.mark(1)  # eaglelab:eagle3-profile
            batch.spec_info.clear_draft_cache(batch)
            (
                draft_input,
                logits,
                verified,
                self.finish_extend_len,
                worker_batch,
            ) = self.verify(batch)
            if _e3 is not None: _e3.mark(2)  # eaglelab:eagle3-profile
            batch.spec_info = draft_input
            # none left means that all requests are finished
            if batch.spec_info.verified_id is not None:
                self.forward_extend_after_decode(batch)
            if _e3 is not None: _e3.mark(3)  # eaglelab:eagle3-profile
            batch.spec_info = previous
            if _e3 is not None: _e3.end(None, None)  # eaglelab:eagle3-profile
            return logits, verified, worker_batch, draft_input

        else:
            logits = self.target_worker.forward_batch_generation(batch)
            self.forward_draft_extend(batch)
            return logits, batch, None
