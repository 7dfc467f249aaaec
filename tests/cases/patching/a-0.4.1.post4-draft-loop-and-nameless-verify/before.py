import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class EAGLEWorker:
    def forward_draft_decode(self, batch):
        return self.model_runner.forward(batch)

    def forward_batch_speculative_generation(self, batch):
        if batch.forward_mode.is_decode():
            previous = batch.spec_info
            self._swap_mem_pool(batch, self.model_runner)
            for _ in range(self.server_args.speculative_num_steps):
                self.forward_draft_decode(batch)
            batch.spec_info.clear_draft_cache(batch)
            (
                draft_input,
                logits,
                verified,
                self.finish_extend_len,
                worker_batch,
            ) = self.verify(batch)
            batch.spec_info = draft_input
            # none left means that all requests are finished
            if batch.spec_info.verified_id is not None:
                self.forward_extend_after_decode(batch)
            batch.spec_info = previous
            return logits, verified, worker_batch, draft_input

        else:
            logits = self.target_worker.forward_batch_generation(batch)
            self.forward_draft_extend(batch)
            return logits, batch, None
