import logging
from frozen import FrozenKVMTPWorker
from contextlib import nullcontext as moe_context

logger = logging.getLogger(__name__)


class FrozenKVMTPWorkerV2(FrozenKVMTPWorker):
    def __init__(self, server_args):
        raise NotImplementedError("overlap scheduling is not yet implemented")
