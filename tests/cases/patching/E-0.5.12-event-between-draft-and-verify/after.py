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
        if (
            model_worker_batch.forward_mode.is_extend()
            or model_worker_batch.is_extend_in_batch
        ):
            with self.draft_worker.draft_tp_context(
                self.draft_worker.draft_runner.tp_group
            ):
                return self.target_worker.forward_batch_generation(model_worker_batch)
        else:
            if _e3 is not None: _e3.begin(self, model_worker_batch)  # eaglelab:eagle3-profile
            if model_worker_batch.spec_info is None:
                model_worker_batch.spec_info = self.idle_input(
                    device=self.device,
                )
            with (
                self.draft_worker.draft_tp_context(
                    self.draft_worker.draft_runner.tp_group
                ),
                moe_context(),
            ):
                verify_input: object = self.draft_worker.draft(
                    model_worker_batch
                )
            if _e3 is not None: _e3.mark(1)  # eaglelab:eagle3-profile
            assert verify_input is not None
            # The plan stream waits for this.
            if self.plan_stream:
                self._draft_done_event.record()
            model_worker_batch.spec_info = verify_input
            batch_output = self.verify(model_worker_batch)
            if _e3 is not None: _e3.mark(2)  # eaglelab:eagle3-profile
            with (
                self.draft_worker.draft_tp_context(
                    self.draft_worker.draft_runner.tp_group
                ),
                moe_context(),
            ):
                self.draft_worker._draft_extend_for_decode(
                    model_worker_batch, batch_output
                )

            if _e3 is not None: _e3.mark(3)  # eaglelab:eagle3-profile
            if _e3 is not None: _e3.end(batch_output, None)  # eaglelab:eagle3-profile
            return batch_output

    def on_verify_complete_cpu(self, counts):
        if _eaglelab.probe is not None: _eaglelab.probe.verified(self, counts)  # eaglelab:eagle3-profile
        return None
