class EAGLEWorkerV2:
    def forward_batch_generation(self, batch):
        self.draft(batch)
        out = self.verify(batch)
        return out
