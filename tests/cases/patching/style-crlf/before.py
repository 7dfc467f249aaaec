import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class EAGLEWorkerV2:
    def forward_batch_generation(self, batch, on_publish=None, grammar_barrier=None):
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            return self.target_worker.forward_batch_generation(batch)
        else:
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
            batch.spec_info = verify_input
            batch_output = self.verify(batch, grammar_barrier=grammar_barrier)
            # Publish before draft_extend so the fence is at verify-end.
            if on_publish is not None:
                on_publish(batch_output.new_seq_lens)
            if self.speculative_num_steps == 0:
                self._stub_skipped_draft_extend(batch, batch_output)
            else:
                with moe_context():
                    self.draft_worker._draft_extend_for_decode(batch, batch_output)

            return batch_output
