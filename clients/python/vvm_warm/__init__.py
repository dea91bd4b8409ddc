"""Warm standby under `vvm run --warm`: be ready before you lead, and stop when you are told.

With asyncio, `async for term in host:` waits for terms, and `async with term:` cancels its block when the work has to
stop. A thread of this module reads the socket. Fork before you connect: a forked child has no connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
import traceback
from typing import Any, Callable, Optional

__all__ = ["Host", "NotStarted", "OtherClock", "Refused", "Term", "TermOver", "connect"]

VERSION, LONGEST_LINE = 1, 4096

_HELLO_TAKES_AT_MOST = 60.0  # A busier host misses its own deadlines. A clock that is further away is another one.
_LOOK = 0.5  # Python's timers stop in a suspend, so the clock is read at least so often.
_UNCLEAR = (OSError, ValueError, KeyError, TypeError)
_REMEDY = "Use `vvm` and client of one release"


class NotStarted(Exception):
    """`vvm run --warm` did not start this program."""


class Refused(Exception):
    """The host has refused the connection. The text says why."""


class OtherClock(Exception):
    """The deadlines of the host are on another clock, as in a time namespace of its own."""


class TermOver(Exception):
    """The leadership ends: begin nothing more. The block of the term ends by it, and does not raise it."""
    def __init__(self, term: Term) -> None:
        super().__init__(f"epoch {term.epoch}: {term.reason}")
        self.term = term


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def connect(path: Optional[str] = None) -> Host:
    """Connect to the host that started this program. Raises NotStarted, Refused or OtherClock."""
    if not (path := path or os.environ.get("VVM_SOCKET")):
        raise NotStarted("VVM_SOCKET is not set: start this program by `vvm run --warm … -- PROGRAM`")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
        user = memoryview(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)).cast("I")[1]  # Its uid.
        if user not in (os.geteuid(), 0):  # In a folder that others may write to, it may be their socket.
            raise NotStarted(f"user {user} listens at VVM_SOCKET ({path}): start `vvm` as this program's user or root")
        return Host(connection)
    except BaseException as cause:
        connection.close()
        if isinstance(cause, OSError):
            raise NotStarted(f"no host at VVM_SOCKET ({path}): {cause}. Has the `vvm` that set it ended?") from cause
        raise


class Host:
    """The connection to the host. `connect` makes it."""
    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lines = connection.makefile("rb")
        self._sending, self._changed = threading.Lock(), threading.Condition()
        self._watchers: list[tuple[asyncio.AbstractEventLoop, Callable[[], object]]] = []
        self._term: Optional[Term] = None
        self._taken: Optional[Term] = None
        self._closed = False
        try:
            hello = self._read() or {}
        except _UNCLEAR as cause:
            raise Refused(f"the host can't be understood: {cause!r}. {_REMEDY}") from cause
        if hello.get("type") != "hello" or hello.get("version") != VERSION:
            raise Refused(f"this client speaks version {VERSION}, the host says {hello or 'nothing'}. {_REMEDY}")
        self.name: str = hello["name"]
        self.holder: str = hello["holder"]
        self.ttl: float = hello["ttl_ms"] / 1000
        # Rounded down by the host, so never later than our own clock, if it is the same.
        if not 0 <= _now() - hello["now"] / 1000 < _HELLO_TAKES_AT_MOST:
            raise OtherClock("CLOCK_BOOTTIME is not the host's: start `vvm` in the time namespace of this program")
        self._say(type="hello", version=VERSION, client="python")
        os.register_at_fork(after_in_child=self._leave_in_child)
        threading.Thread(target=self._listen, name="vvm", daemon=True).start()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. A term that was not left is over for the host: it ends this program."""
        self._end("the connection was closed")
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def ready(self, ready: bool = True) -> None:
        """Say whether this process could lead. `False` while leading resigns."""
        self._say(type="ready", ready=ready)

    def next_term(self) -> Optional[Term]:
        """Wait until this process leads. Return None when the host has closed the connection."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._term is not self._taken)
        return self._take()

    def __aiter__(self) -> Host:
        return self

    async def __anext__(self) -> Term:
        changed = asyncio.Event()
        forget = self._watch(changed.set)
        try:
            while (term := self._take()) is None:
                if self._closed:
                    raise StopAsyncIteration
                await changed.wait()
                changed.clear()
            return term
        finally:
            forget()

    def _take(self) -> Optional[Term]:
        with self._changed:
            if self._closed or (term := self._term) is None or term is self._taken:
                return None
            self._taken = term
        term._say("leading")
        return term

    def _watch(self, call: Callable[[], object]) -> Callable[[], None]:
        """Have the running event loop call this after each change. Return what ends that."""
        watcher = (asyncio.get_running_loop(), call)
        with self._changed:
            self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def _tell(self) -> None:
        self._changed.notify_all()
        for loop, call in list(self._watchers):
            with contextlib.suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(call)

    def _say(self, **message: Any) -> None:
        with contextlib.suppress(OSError), self._sending:  # The thread that reads sees the end of the connection.
            line = json.dumps(message, ensure_ascii=False) + "\n"  # Emoji as escapes would exceed LONGEST_LINE.
            self._socket.sendall(line.encode(errors="replace"))

    def _read(self) -> Optional[dict[str, Any]]:
        line = self._lines.readline(LONGEST_LINE)
        if not line:
            return None
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            raise ValueError(f"a line of more than {LONGEST_LINE} bytes")
        message: dict[str, Any] = json.loads(line)  # A line that is not complete is no JSON.
        if message["type"] == "refused":
            raise Refused(message["reason"])
        return message

    def _listen(self) -> None:
        reason = "the host has closed the connection"
        try:
            while message := self._read():
                with self._changed:
                    self._handle(message)
                    self._tell()
        except Refused as refusal:
            reason = str(refusal)
        except _UNCLEAR as cause:
            # Nothing of it counts. The term ends here, and the kill deadline holds in any case.
            reason = f"the host can't be understood: {cause!r}. {_REMEDY}"
        self._end(reason)

    def _handle(self, message: dict[str, Any]) -> None:
        kind, term = message["type"], self._term
        if kind == "lead":
            if term:
                term._stop("another leadership has begun")
            self._term = Term(self, message)
        elif term is None or message.get("epoch") != str(term.epoch):
            return
        elif kind == "renewed" and not term.is_over():
            term._stop_by, term.at_risk = message["stop_by"] / 1000, False
        elif kind == "at_risk":
            term.at_risk = True
        elif kind == "stop":
            term._stop(message["reason"])

    def _end(self, reason: str) -> None:
        with self._changed:
            self._closed = True
            if self._term:
                self._term._stop(reason)
            self._tell()

    def _leave_in_child(self) -> None:
        self._sending, self._changed = threading.Lock(), threading.Condition()  # Another thread may have held them.
        self._watchers = []
        self._end("this is a forked child")
        with contextlib.suppress(OSError):  # A child of a child has no descriptor of it.
            os.close(self._socket.detach())


class Term:
    """One leadership. Leave the `with` block when the work has stopped: then the host says it is over."""
    def __init__(self, host: Host, lead: dict[str, Any]) -> None:
        self._host = host
        self._stop_by: float = lead["stop_by"] / 1000
        self.slot: int = lead["slot"]
        self.epoch = int(lead["epoch"])  #: The fencing token. Stays readable after the term.
        self.reason: Optional[str] = None  #: Why the work has to stop, once it has to.
        self.at_risk = False  #: Whether no renewal has been confirmed for half a TTL.
        self._task: Optional[asyncio.Task[Any]] = None  # Of an `async with` block.
        self._cancels = False

    def __enter__(self) -> Term:
        return self

    def __exit__(self, kind: object, error: Optional[BaseException], trace: object) -> bool:
        is_over = isinstance(error, TermOver) and error.term is self
        if isinstance(error, Exception) and not is_over:
            traceback.print_exception(type(error), error, error.__traceback__)  # The host ends this process at once.
            self._say("failed", reason=repr(error)[:500])
        else:
            self._say("stopped")
        return is_over

    async def __aenter__(self) -> Term:
        self._task, self._forget = asyncio.current_task(), self._host._watch(self._check)
        asyncio.get_running_loop().call_soon(self._look)  # Not now: the block may wait for nothing, and end before.
        return self

    def _look(self) -> None:
        self._check()
        if self._task and not self._cancels:
            asyncio.get_running_loop().call_later(min(self.remaining(), _LOOK), self._look)

    def _check(self) -> None:
        if self._task and not self._cancels and self.is_over():
            self._cancels = True
            self._task.cancel()

    async def __aexit__(self, kind: object, error: Optional[BaseException], trace: object) -> bool:
        task, self._task = self._task, None
        self._forget()
        others = task.uncancel() if task and self._cancels and hasattr(task, "uncancel") else 0  # Python 3.11 counts.
        is_over = self.__exit__(kind, error, trace)
        return is_over or (self._cancels and not others and isinstance(error, asyncio.CancelledError))

    def remaining(self) -> float:
        """The seconds until the work has to stop, if nothing is renewed until then. Zero after a stop."""
        left = self._stop_by - _now()
        if self.reason is None and left > 0:
            return left
        self._stop("not renewed in time")  # No renewal counts after this: another process may lead soon.
        return 0.0

    def is_over(self) -> bool:
        """Whether the work has to stop."""
        return self.remaining() == 0.0

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until the work has to stop. Return whether it has to."""
        until = _now() + seconds
        with self._host._changed:
            while not self.is_over() and (left := until - _now()) > 0:
                self._host._changed.wait(min(left, self.remaining(), _LOOK))
            return self.is_over()

    def fence(self) -> int:
        """The epoch, for the next write. Raises TermOver if the work has to stop."""
        if self.is_over():
            raise TermOver(self)
        return self.epoch

    def alive(self) -> None:
        """Say that the work goes on: with `--alive-within`, often enough, and from the work itself."""
        self._say("alive")

    def resign(self) -> None:
        """Ask the host to end this leadership. Go on until `wait` says that it is over."""
        self._say("resign")

    def _say(self, kind: str, **more: str) -> None:
        self._host._say(type=kind, epoch=str(self.epoch), **more)

    def _stop(self, reason: str) -> None:
        self.reason = self.reason or reason  # The first one stands.
