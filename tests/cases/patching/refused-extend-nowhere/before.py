import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class EAGLEWorkerV2:
    def forward_batch_generation(self, model_worker_batch):
        if model_worker_batch.forward_mode.is_decode():
            # one spec_info for both
            draft_input = model_worker_batch.spec_info
            verify_input: object = self.draft(model_worker_batch)
            model_worker_batch.spec_info = verify_input
            batch_output = self.verify(model_worker_batch, draft_input)
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

        self.record(verify_done)

        # Batch 2
        self.draft_model_runner.model.forward(
            batch,
        )
        batch_output.verify_done = verify_done
        return batch_output
