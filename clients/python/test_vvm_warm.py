"""Tests of the client against a host that this test plays: `python3 -m unittest`."""

import asyncio
import contextlib
import io
import json
import os
import socket
import struct
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import vvm_warm


def now_ms() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)


class Played:
    """A host that says what the test wants, and keeps what it hears."""

    def __init__(self, **changes):
        self.socket, self.far = socket.socketpair()
        self.heard = self.socket.makefile("r")
        hello = {"version": 1, "name": "payroll", "holder": "here", "ttl_ms": 20000, "now": now_ms()}
        self.say("hello", **{**hello, **changes})

    def say(self, kind, **members):
        self.socket.sendall(json.dumps({"type": kind, **members}).encode() + b"\n")

    def hears(self):
        message = json.loads(self.heard.readline(vvm_warm.LONGEST_LINE))
        return message.pop("type"), message

    def lead(self, epoch="7", for_ms=60000):
        self.say("lead", slot=1, epoch=epoch, stop_by=now_ms() + for_ms, kill_at=now_ms() + for_ms + 3000)

    def term(self, **how):
        """A client that leads, after `hello`."""
        host = vvm_warm.Host(self.far)
        assert self.hears()[0] == "hello"
        self.lead(**how)
        term = host.next_term()
        assert self.hears() == ("leading", {"epoch": how.get("epoch", "7")})
        return host, term


def eventually(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


class ClientTest(unittest.TestCase):
    def test_term_lasts_until_stop_and_says_stopped_after_its_block(self):
        played = Played()
        host, term = played.term()
        self.assertEqual((host.name, host.holder, host.ttl), ("payroll", "here", 20.0))
        with term:
            self.assertEqual((term.fence(), term.slot, term.wait(0)), (7, 1, False))
            played.say("stop", epoch="7", reason="step_down", stop_by=now_ms(), kill_at=now_ms())
            self.assertTrue(term.wait(30))
            with self.assertRaisesRegex(vvm_warm.TermOver, "epoch 7: step_down"):
                term.fence()
        self.assertEqual(played.hears(), ("stopped", {"epoch": "7"}))
        self.assertEqual((term.epoch, term.reason, term.remaining()), (7, "step_down", 0.0))

    def test_block_that_fails_says_failed_and_shows_the_error(self):
        played, shown = Played(), io.StringIO()
        _, term = played.term()
        with contextlib.redirect_stderr(shown), self.assertRaises(ValueError), term:
            raise ValueError("xxx" + "\N{GRINNING FACE}" * 5000)
        said, members = played.hears()
        self.assertEqual((said, members["epoch"], len(members["reason"])), ("failed", "7", 500))
        self.assertTrue(members["reason"].startswith("ValueError('xxx"))
        self.assertRegex(shown.getvalue(), "Traceback(.|\n)*ValueError: xxx")

    def test_block_that_is_left_by_the_end_of_the_program_says_stopped(self):
        played = Played()
        _, term = played.term()
        with self.assertRaises(SystemExit), term:
            raise SystemExit
        self.assertEqual(played.hears(), ("stopped", {"epoch": "7"}))

    def test_block_whose_fence_fails_ends_by_it_and_no_other_block_does(self):
        played = Played()
        host, first = played.term(for_ms=0)
        with first:
            first.fence()
        self.assertEqual(played.hears(), ("stopped", {"epoch": "7"}))
        played.lead(epoch="8")
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(vvm_warm.TermOver), host.next_term():
            first.fence()

    def test_another_leadership_ends_the_term(self):
        played = Played()
        _, term = played.term()
        played.lead(epoch="8")
        self.assertTrue(term.wait(30))
        self.assertEqual((term.epoch, term.reason), (7, "another leadership has begun"))

    def test_term_ends_at_stop_by_without_a_message_and_never_comes_back(self):
        played = Played()
        _, term = played.term(for_ms=50)
        self.assertTrue(term.wait(30))
        self.assertEqual(term.reason, "not renewed in time")
        played.say("renewed", epoch="7", stop_by=now_ms() + 60000, kill_at=now_ms() + 63000)
        played.say("at_risk", epoch="7")
        eventually(lambda: term.at_risk)
        self.assertEqual(term.remaining(), 0.0)

    def test_renewal_after_stop_by_is_too_late_even_if_the_end_was_not_noticed(self):
        played = Played()
        _, term = played.term(for_ms=0)
        played.say("renewed", epoch="7", stop_by=now_ms() + 60000, kill_at=now_ms() + 63000)
        played.say("at_risk", epoch="7")
        eventually(lambda: term.at_risk)
        self.assertEqual(term.remaining(), 0.0)

    def test_renewal_moves_the_end_and_messages_of_another_epoch_change_nothing(self):
        played = Played()
        _, term = played.term(for_ms=60000)
        played.say("renewed", epoch="6", stop_by=0, kill_at=0)
        played.say("stop", epoch="8", reason="lost", stop_by=0, kill_at=0)
        played.say("of a later version", epoch="7")
        played.say("renewed", epoch="7", stop_by=now_ms() + 120000, kill_at=now_ms() + 123000, more=1)
        eventually(lambda: term.remaining() > 60)
        self.assertFalse(term.is_over())

    def test_loss_of_the_connection_ends_the_term(self):
        played = Played()
        host, term = played.term()
        played.socket.shutdown(socket.SHUT_RDWR)
        self.assertTrue(term.wait(30))
        self.assertIsNone(host.next_term())

    def test_what_is_no_message_ends_the_term(self):
        too_long = json.dumps({"type": "at_risk", "epoch": "7", "more": "x" * 4096}).encode()
        for line in (b"[]", b'{"type":"renewed","epoch":"7"}', too_long):
            played = Played()
            _, term = played.term()
            played.socket.sendall(line + b"\n")
            self.assertTrue(term.wait(30))
            self.assertIn("can't be understood", term.reason)
        self.assertIn("a line of more than 4096 bytes", term.reason)

    def test_forked_child_has_no_term_and_no_connection(self):
        played = Played()
        host, term = played.term()
        child = os.fork()
        if child == 0:
            sys.unraisablehook = lambda _: os._exit(2)
            grandchild = os.fork()
            passed = term.is_over() and host.next_term() is None and (not grandchild or os.wait()[1] == 0)
            os._exit(0 if passed else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertFalse(term.is_over())
        term.alive()
        self.assertEqual(played.hears(), ("alive", {"epoch": "7"}))
        term.resign()
        self.assertEqual(played.hears(), ("resign", {"epoch": "7"}))

    def test_another_clock_version_or_parent_is_refused(self):
        for changes in ({"now": now_ms() + 100000}, {"now": now_ms() - 100000}):
            with self.assertRaisesRegex(vvm_warm.OtherClock, "CLOCK_BOOTTIME.*start `vvm` in the time namespace"):
                vvm_warm.Host(Played(**changes).far)
        for line, says in (
            (b'{"type":"hello","version":2}\n', "version 1, the host says .*Use `vvm` and client of one release"),
            (b'{"type":"hello"}\n', "version 1, the host says"),
            (b"", "the host says nothing"),
            (b"x" * 4096, "a line of more than 4096 bytes.*one release"),
            (b"[]\n", "can't be understood.*one release"),
            (b'{"type":"refused","reason":"not of the app"}\n', "not of the app"),
        ):
            near, far = socket.socketpair()
            near.sendall(line)
            near.shutdown(socket.SHUT_WR)
            with self.assertRaisesRegex(vvm_warm.Refused, says):
                vvm_warm.Host(far)
        os.environ.pop("VVM_SOCKET", None)
        with self.assertRaisesRegex(vvm_warm.NotStarted, "vvm run --warm"):
            vvm_warm.connect()
        for path, cause in (("/nowhere/socket", "No such file"), ("/" + "x" * 107, "path too long")):
            with self.assertRaisesRegex(vvm_warm.NotStarted, f"no host at VVM_SOCKET.*{cause}.*ended"):
                vvm_warm.connect(path)

    def test_listener_of_another_user_is_refused(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path := os.path.join(folder, "s"))
            listener.listen()
            other = os.geteuid() + 1
            with unittest.mock.patch.object(socket.socket, "getsockopt", lambda *_: struct.pack("iII", 1, other, 1)):
                with self.assertRaisesRegex(vvm_warm.NotStarted, f"user {other} listens"):
                    vvm_warm.connect(path)


class AsyncTest(unittest.TestCase):
    def test_block_is_cancelled_by_stop_and_says_stopped_after_its_end(self):
        async def main():
            played, steps = Played(), []
            host = vvm_warm.Host(played.far)
            played.hears()
            asyncio.get_running_loop().call_later(0.01, played.lead)
            async for term in host:
                self.assertEqual(played.hears(), ("leading", {"epoch": "7"}))
                async with term:
                    try:
                        played.say("stop", epoch="7", reason="step_down", stop_by=now_ms(), kill_at=now_ms())
                        await asyncio.sleep(60)
                    finally:
                        # Work that is cancelled may wait, and `stopped` comes after it.
                        await asyncio.sleep(0)
                        played.socket.setblocking(False)
                        with self.assertRaises(BlockingIOError):
                            played.socket.recv(1)
                        played.socket.setblocking(True)
                        steps.append(term.reason)
                self.assertEqual(played.hears(), ("stopped", {"epoch": "7"}))
                played.socket.shutdown(socket.SHUT_RDWR)
            return steps

        self.assertEqual(asyncio.run(main()), ["step_down"])

    def test_block_is_cancelled_at_stop_by_without_a_message(self):
        async def main():
            played = Played()
            _, term = played.term(for_ms=100)
            async with term:
                await asyncio.sleep(60)
                self.fail("not cancelled")
            return term.reason

        self.assertEqual(asyncio.run(main()), "not renewed in time")

    def test_block_that_ends_by_itself_is_not_cancelled_later(self):
        async def main(for_ms):
            played = Played()
            _, term = played.term(for_ms=for_ms)
            async with term:
                pass
            self.assertEqual(played.hears()[0], "stopped")
            while not term.is_over():
                await asyncio.sleep(0.01)
            term._look()
            await asyncio.sleep(0)

        for for_ms in (0, 50):
            asyncio.run(main(for_ms))

    def test_cancellation_from_outside_is_not_swallowed(self):
        async def main():
            played = Played()
            _, term = played.term()

            async def work():
                async with term:
                    await asyncio.sleep(60)

            task = asyncio.create_task(work())
            await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(played.hears()[0], "stopped")

        asyncio.run(main())

    def test_waiting_for_a_term_can_be_cancelled_and_loses_none(self):
        async def main():
            played = Played()
            host = vvm_warm.Host(played.far)
            played.hears()
            waiting = asyncio.ensure_future(host.__anext__())
            await asyncio.sleep(0.01)
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting
            played.lead()
            self.assertEqual((await host.__anext__()).epoch, 7)
            host.close()
            self.assertEqual([term async for term in host], [])

        asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
