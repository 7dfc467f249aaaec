import logging
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


def torch_module(cls):
    return cls


def inference_mode():
    return lambda function: function


def traced(name):
    return lambda function: function


@torch_module
class EAGLEWorkerV2:
    @inference_mode()
    @traced(
        name="decode",
    )
    def forward_batch_generation(self, batch):
        if batch.forward_mode.is_extend():
            return self.target_worker.forward_batch_generation(batch)
        else:
            verify_input = self.draft_worker.draft(batch)
            @torch_module
            class Note:
                pass

            batch_output = self.verify(batch)
            self.draft_worker._draft_extend_for_decode(batch, batch_output)
            return batch_output
