"""Ctrl-C: the first ends what is at work and has it put back, the second leaves at once, whatever hangs."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType

__all__ = ["Interrupts"]

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_SAME_S = 0.2
"""A terminal that closes, and a wrapper that passes a Ctrl-C on, send more than one signal in no time: that is one."""

_NUDGE, _NUDGE_S = signal.SIGURG, 0.05
"""Nobody else sends it, and it does no harm where nobody waits for it."""

_WORDS_S = 0.5
"""How long the last words may take: whoever reads them may hang too."""


class Interrupts:
    """While it is entered, the first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt, and `first` is called at once.

    A later SIGINT or SIGTERM calls `last` and ends the process with 130, within a second. A thread sees to that: the
    main thread may hang in a call that no signal ends, such as a name look-up. What is ignored stays ignored, as under
    nohup. Once a signal came, this goes on after it was left, to the end of the process: Python may hang there, too.
    """

    def __init__(self, first: Callable[[], None], last: Callable[[], None]) -> None:
        self._first = first
        self._last = last
        self._raised = False
        self._over = False
        self._told = threading.Lock()

    def over(self) -> None:
        """From here on there is nothing left to end: a signal raises nothing, and a second one leaves without a word."""
        self._over = True

    def __enter__(self) -> Interrupts:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._before = {number: signal.getsignal(number) for number in _NUMBERS}
        self._fd_before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number, handler in self._before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, self._raise)
        self._before[_NUDGE] = signal.signal(_NUDGE, lambda _number, _frame: None)
        self._main = threading.get_ident()
        self._thread = threading.Thread(target=self._listen, name="interrupts", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._raised:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)
        os.close(self._writing)  # ends the thread
        self._thread.join()
        os.close(self._reading)

    def _raise(self, _number: int, _frame: FrameType | None) -> None:
        first, self._raised = not self._raised, True
        if first and not self._over:
            self._tell()
            raise KeyboardInterrupt

    def _listen(self) -> None:
        told = False
        while numbers := self._next(nudging=told):
            if not told and numbers & {*_NUMBERS}:
                told = True
                # In a thread of its own: whoever reads the words may hang, and a second signal is to be heard all the same.
                threading.Thread(target=self._tell, name="first words", daemon=True).start()
                self._pass_over()
            elif numbers & {*_NUMBERS} - {signal.SIGHUP}:
                self._leave()

    def _next(self, *, nudging: bool) -> set[int]:
        """The numbers of the signals that came; none at the end.

        A signal that comes just before the main thread begins a long call does not end that call: until it was seen
        there, that thread is nudged.
        """
        while nudging and not self._raised and not select.select([self._reading], [], [], _NUDGE_S)[0]:
            signal.pthread_kill(self._main, _NUDGE)
        return set(os.read(self._reading, 512))

    def _pass_over(self) -> None:
        """What comes with the first signal. Its time of arrival cannot be known, and this thread may be kept waiting:

        so it is what has come when the time is over, and not what is read by then.
        """
        end = time.monotonic() + _SAME_S
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _NUDGE_S))
            if not self._raised:
                signal.pthread_kill(self._main, _NUDGE)
        while select.select([self._reading], [], [], 0)[0] and os.read(self._reading, 512):
            pass

    def _tell(self) -> None:
        """By whichever thread is the first to come by."""
        if not self._over and self._told.acquire(blocking=False):
            self._first()

    def _leave(self) -> None:
        if self._over:
            os._exit(130)
        timer = threading.Timer(_WORDS_S, os._exit, (130,))
        timer.daemon = True
        timer.start()
        with contextlib.suppress(OSError):
            self._last()
        os._exit(130)
