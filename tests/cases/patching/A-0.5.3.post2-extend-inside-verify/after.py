import logging
from contextlib import nullcontext as moe_context

try:  # eaglelab:eagle3-profile
    from sglang.srt.speculative import eaglelab_probe as _eaglelab  # eaglelab:eagle3-profile
except Exception:  # eaglelab:eagle3-profile
    class _eaglelab: probe = None  # eaglelab:eagle3-profile
logger = logging.getLogger(__name__)


class EAGLEWorkerV2:
    def forward_batch_generation(self, model_worker_batch):
        _e3 = _eaglelab.probe  # eaglelab:eagle3-profile
        if _e3 is not None: _e3.enter()  # eaglelab:eagle3-profile
        if model_worker_batch.forward_mode.is_decode():
            # one spec_info for both
            if _e3 is not None: _e3.begin(self, model_worker_batch)  # eaglelab:eagle3-profile
            draft_input = model_worker_batch.spec_info
            verify_input: object = self.draft(model_worker_batch)
            if _e3 is not None: _e3.mark(1)  # eaglelab:eagle3-profile
            model_worker_batch.spec_info = verify_input
            batch_output = self.verify(model_worker_batch, draft_input)
            if _e3 is not None: _e3.mark(3)  # eaglelab:eagle3-profile
            if _e3 is not None: _e3.end(batch_output, None)  # eaglelab:eagle3-profile
            return batch_output
        else:
            batch_output = self.target_worker.forward_batch_generation(
                model_worker_batch
            )
            return batch_output

    def verify(self, batch, draft_input):
        """Batch 1: target verify. Batch 2: draft extend."""
        with moe_context():
            batch_output = self.target_worker.forward_batch_generation(batch)
        verify_done = self.new_event()

        # Move the accepted tokens
        self.move_accepted_tokens_to_target_kvcache(batch)

        verify_done.record()

        # Batch 2
        if _eaglelab.probe is not None: _eaglelab.probe.mark(2)  # eaglelab:eagle3-profile
        self.draft_model_runner.model.forward(
            batch,
        )
        batch_output.verify_done = verify_done
        return batch_output
