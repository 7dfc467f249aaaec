import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class EAGLEWorker:
    def forward_batch_speculative_generation(self, batch):
        if batch.forward_mode.is_decode():
            # draft
            self._swap_mem_pool(batch, self.model_runner)
            for _ in range(self.server_args.speculative_num_steps):
                self.forward_draft_decode(batch)
            batch.spec_info.clear_draft_cache(batch)
            # verify
            (
                draft_input,
                logits,
                verified,
                self.finish_extend_len,
                accept_length_cpu,
                worker_batch,
            ) = self.verify(batch)
            batch.spec_info = draft_input
            if batch.spec_info.verified_id is not None:
                self.forward_draft_extend_after_decode(batch)
            return logits, verified, worker_batch, sum(accept_length_cpu)
        else:
            return self.forward_target_extend(batch)
