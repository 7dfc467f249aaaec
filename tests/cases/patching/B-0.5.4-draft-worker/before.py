import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class EagleDraftWorker:
    def draft(self, model_worker_batch):
        return self.draft_runner.forward(model_worker_batch)


class EAGLEWorkerV2:
    def forward_batch_generation(self, model_worker_batch):
        if model_worker_batch.forward_mode.is_decode():
            draft_input = model_worker_batch.spec_info
            verify_input: object = self.draft_worker.draft(model_worker_batch)
            model_worker_batch.spec_info = verify_input
            batch_output = self.verify(model_worker_batch, draft_input)
            self.draft_worker._draft_extend_for_decode(model_worker_batch, batch_output)
            return batch_output
        else:
            return self.target_worker.forward_batch_generation(model_worker_batch)
