import logging
from contextlib import nullcontext as moe_context

try:  # eaglelab:eagle3-profile
    from sglang.srt.speculative import eaglelab_probe as _eaglelab  # eaglelab:eagle3-profile
except Exception:  # eaglelab:eagle3-profile
    class _eaglelab: probe = None  # eaglelab:eagle3-profile
logger = logging.getLogger(__name__)


class EAGLEWorkerV2:
    def forward_batch_generation(self, batch, on_publish=None, grammar_barrier=None):
        _e3 = _eaglelab.probe  # eaglelab:eagle3-profile
        if _e3 is not None: _e3.enter()  # eaglelab:eagle3-profile
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            return self.target_worker.forward_batch_generation(batch)
        else:
            if _e3 is not None: _e3.begin(self, batch)  # eaglelab:eagle3-profile
            self.activate_step_by_batch(batch.seq_lens.shape[0])

            if self.speculative_num_steps == 0:
                # Drafting disabled.
                verify_input = self._build_trivial_verify_input(batch)
            else:
                with (
                    moe_context(),
                    moe_context("draft"),
                ):
                    verify_input: object = self.draft_worker.draft(batch)
            if _e3 is not None: _e3.mark(1)  # eaglelab:eagle3-profile
            batch.spec_info = verify_input
            batch_output = self.verify(batch, grammar_barrier=grammar_barrier)
            # Publish before draft_extend so the fence is at verify-end.
            if _e3 is not None: _e3.mark(2)  # eaglelab:eagle3-profile
            if on_publish is not None:
                on_publish(batch_output.new_seq_lens)
            if self.speculative_num_steps == 0:
                self._stub_skipped_draft_extend(batch, batch_output)
            else:
                with moe_context():
                    self.draft_worker._draft_extend_for_decode(batch, batch_output)

            if _e3 is not None: _e3.mark(3)  # eaglelab:eagle3-profile
            if _e3 is not None: _e3.end(batch_output, None)  # eaglelab:eagle3-profile
            return batch_output
