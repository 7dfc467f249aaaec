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
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            return self.forward_target_extend(batch), 0
        else:
            if _e3 is not None: _e3.begin(self, batch)  # eaglelab:eagle3-profile
            with self.draft_tp_context(self.draft_model_runner.tp_group):
                spec_info = self.draft(batch)
            if _e3 is not None: _e3.mark(1)  # eaglelab:eagle3-profile
            logits_output, verify_output, worker_batch, can_run_cuda_graph = (
                self.verify(batch, spec_info)
            )

            if _e3 is not None: _e3.mark(2)  # eaglelab:eagle3-profile
            if self.check_forward_draft_extend_after_decode(batch):
                with self.draft_tp_context(self.draft_model_runner.tp_group):
                    self.forward_draft_extend_after_decode(
                        batch,
                    )
            if _e3 is not None: _e3.mark(3)  # eaglelab:eagle3-profile
            if _e3 is not None: _e3.end(verify_output, can_run_cuda_graph)  # eaglelab:eagle3-profile
            return (
                logits_output,
                verify_output.verified_id,
                can_run_cuda_graph,
            )
