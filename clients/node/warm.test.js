// Tests of the client against a host that this test plays: `node --test`.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Closed, NotStarted, Refused, TermOver, run } from "./warm.js";

// A test that waits for what never comes fails.
const limits = { timeout: 30_000 };
const now = () => Math.floor(Number.parseFloat(fs.readFileSync("/proc/uptime", "utf8")) * 1000);
const hello = (changes) => ({ type: "hello", version: 1, name: "payroll", holder: "here", now: now(), ...changes });

// A host that says what a test wants, and keeps what it hears.
async function play(t, lead, options = {}) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "warm-"));
  const server = net.createServer({ allowHalfOpen: true });
  server.listen(path.join(folder, "s"));
  await once(server, "listening");
  process.env.VVM_SOCKET = path.join(folder, "s");
  const ended = run(options, lead);
  // Asserted by tests, perhaps later.
  ended.catch(() => {});
  const [socket] = await once(server, "connection");
  server.close();
  const lines = readline.createInterface({ input: socket })[Symbol.asyncIterator]();
  t.after(() => (socket.destroy(), fs.rmSync(folder, { recursive: true })));
  return {
    socket,
    ended,
    say: (message) => socket.write(`${JSON.stringify(message)}\n`),
    hears: async (expected) => assert.deepEqual(JSON.parse((await lines.next()).value), expected),
    hearsEnd: async () => assert.equal((await lines.next()).done, true),
    lead(epoch, lasts) {
      this.say({ type: "lead", slot: 1, epoch, stop_by: now() + lasts, kill_at: now() + lasts });
    },
  };
}

// Plays until `leading` is said.
async function leads(t, lasts, lead, options) {
  const played = await play(t, lead, options);
  played.say(hello());
  await played.hears({ type: "hello", version: 1, client: "node" });
  await played.hears({ type: "ready", ready: true });
  played.lead("7", lasts);
  await played.hears({ type: "leading", epoch: "7" });
  return played;
}

const untilStop = (signal) => new Promise((stopped) => signal.addEventListener("abort", stopped));

test("a term lasts until stop, and stopped follows the end of its function", limits, async (t) => {
  let released, taken;
  const release = new Promise((resolve) => (released = resolve));
  const played = await leads(t, 60_000, async (term) => {
    taken = term;
    await untilStop(term.signal);
    await release;
  });
  assert.deepEqual([taken.fence(), taken.slot, taken.signal.aborted], [7n, 1, false]);
  played.say({ type: "stop", epoch: "7", reason: "step_down", stop_by: 0, kill_at: 0 });
  await untilStop(taken.signal);
  assert.throws(() => taken.fence(), { name: "TermOver", message: "epoch 7: step_down" });
  const heard = played.hears({ type: "stopped", epoch: "7" });
  assert.equal(await Promise.race([heard, sleep(20, "nothing yet")]), "nothing yet");
  released();
  await heard;
  assert.deepEqual([taken.epoch, taken.remaining()], [7n, 0]);
  // It goes on as a standby.
  played.lead("9", 60_000);
  await played.hears({ type: "leading", epoch: "9" });
  played.socket.destroy();
  await untilStop(taken.signal);
  released();
  await assert.rejects(played.ended, Closed);
});

test("a term ends at stop_by without a message, and never comes back", limits, async (t) => {
  let taken;
  const played = await leads(t, 50, async (term) => {
    taken = term;
    await untilStop(term.signal);
  });
  await played.hears({ type: "stopped", epoch: "7" });
  assert.equal(taken.signal.reason.message, "epoch 7: not renewed in time");
  played.say({ type: "renewed", epoch: "7", stop_by: now() + 60_000 });
  played.say({ type: "at_risk", epoch: "7" });
  while (!taken.atRisk) {
    await sleep(1);
  }
  assert.equal(taken.remaining(), 0);
});

// The start of /proc/uptime is the container's with lxcfs.
const clockAhead = (t, seconds) =>
  t.mock.method(fs, "readSync", (file, into) => into.write(`${now() / 1000 + seconds} 0\n`));

test("suspend counts, and the signal is aborted soon after it, also if a renewal comes first", limits, async (t) => {
  for (const isRenewed of [false, true]) {
    let taken;
    const container = clockAhead(t, -100);
    const played = await leads(t, 60_000, async (term) => {
      taken = term;
      await untilStop(term.signal);
    });
    assert.ok(taken.remaining() > 0 && taken.remaining() <= 60_000);
    container.mock.restore();
    const clock = clockAhead(t, 20);
    if (isRenewed) {
      played.say({ type: "renewed", epoch: "7", stop_by: now() + 240_000 });
    }
    await played.hears({ type: "stopped", epoch: "7" });
    assert.throws(() => taken.fence(), TermOver);
    clock.mock.restore();
  }
});

test("a hello that is read late shortens the term", limits, async (t) => {
  const played = await play(t, (term) => assert.ok(term.signal.aborted));
  const clock = clockAhead(t, 120);
  played.say(hello());
  await played.hears({ type: "hello", version: 1, client: "node" });
  await played.hears({ type: "ready", ready: true });
  played.lead("7", 60_000);
  await played.hears({ type: "leading", epoch: "7" });
  await played.hears({ type: "stopped", epoch: "7" });
  clock.mock.restore();
});

test("a loop that never waits is stopped by its fence", limits, async (t) => {
  const played = await leads(t, 100, async (term) => {
    for (;;) {
      term.fence();
    }
  });
  await played.hears({ type: "stopped", epoch: "7" });
});

test("a renewal moves the end, and other messages change nothing", limits, async (t) => {
  let taken;
  const played = await leads(t, 60_000, async (term) => {
    taken = term;
    await untilStop(term.signal);
  });
  played.say({ type: "renewed", epoch: "6", stop_by: 0 });
  played.say({ type: "stop", epoch: "8", reason: "lost" });
  played.say({ type: "of a later version", epoch: "7" });
  played.say({ type: "renewed", epoch: "7", stop_by: now() + 120_000, more: {} });
  while (taken.remaining() <= 60_000) {
    await sleep(1);
  }
  taken.alive();
  await played.hears({ type: "alive", epoch: "7" });
  taken.resign();
  await played.hears({ type: "resign", epoch: "7" });
});

test("both functions can say whether this process could lead", limits, async (t) => {
  const played = await play(t, async (term, host) => {
    host.setReady(false);
    await untilStop(term.signal);
    host.setReady(true);
  }, { ready: (host) => host.setReady(false) });
  played.say(hello());
  await played.hears({ type: "hello", version: 1, client: "node" });
  await played.hears({ type: "ready", ready: false });
  await played.hears({ type: "ready", ready: true });
  played.lead("7", 60_000);
  await played.hears({ type: "leading", epoch: "7" });
  await played.hears({ type: "ready", ready: false });
  played.say({ type: "stop", epoch: "7", reason: "not_ready" });
  await played.hears({ type: "ready", ready: true });
  await played.hears({ type: "stopped", epoch: "7" });
});

test("the error of the function is said, shown, and the result", limits, async (t) => {
  const shown = t.mock.method(console, "error", () => {});
  const failure = new Error(`no database ${"\u{1f600}".repeat(5000)}`); // Cut within a pair.
  const played = await leads(t, 60_000, () => {
    throw failure;
  });
  const reason = `${String(failure).slice(0, 499)}\ufffd`;
  await played.hears({ type: "failed", epoch: "7", reason });
  await assert.rejects(played.ended, failure);
  assert.deepEqual(shown.mock.calls[0].arguments, [failure]);
});

test("work that is aborted by the signal is no error", limits, async (t) => {
  const played = await leads(t, 60_000, (term) => sleep(60_000, undefined, { signal: term.signal }));
  played.say({ type: "stop", epoch: "7", reason: "terminating" });
  await played.hears({ type: "stopped", epoch: "7" });
  played.lead("8", 60_000);
  await played.hears({ type: "leading", epoch: "8" });
});

test("the end of the caller's signal ends term and run", limits, async (t) => {
  const controller = new AbortController();
  const lead = (term) => sleep(60_000, undefined, { signal: term.signal });
  const played = await leads(t, 60_000, lead, { signal: controller.signal });
  controller.abort();
  await played.hears({ type: "stopped", epoch: "7" });
  await played.ended;
  const waiting = await play(t, lead, { signal: controller.signal, ready: () => assert.fail() });
  await waiting.ended;
});

test("what is no message ends the term", limits, async (t) => {
  const long = JSON.stringify({ type: "at_risk", epoch: "7", more: "x".repeat(4096) });
  const bad = ["[]", "{", '{"type":"lead","epoch":"x"}', '{"type":"renewed","epoch":"7"}', long];
  for (const line of bad) {
    const played = await leads(t, 60_000, (term) => untilStop(term.signal));
    played.socket.write(`${line}\n`);
    await assert.rejects(played.ended, { name: "Closed", message: /can't be understood/ }, line);
  }
});

test("the connection is not inherited by a child", limits, async (t) => {
  let child;
  const played = await leads(t, 60_000, async () => {
    child = spawn("sleep", ["1000"]);
    await once(child, "spawn");
    throw new Error("ends");
  });
  t.after(() => child.kill("SIGKILL"));
  await played.hears({ type: "failed", epoch: "7", reason: "Error: ends" });
  await assert.rejects(played.ended, { message: "ends" });
  await played.hearsEnd();
});

test("another version or parent is refused", limits, async (t) => {
  for (const [line, is, says] of [
    [hello({ version: 2 }), Refused, /speaks version 1, the host says .*Use `vvm` and client of one release/],
    [[], Closed, /can't be understood.*Use `vvm` and client of one release/],
    ["x".repeat(4096), Closed, /a line of more than 4096 bytes.*Use `vvm`/],
    [{ type: "refused", reason: "not of the app" }, Refused, /not of the app/],
  ]) {
    const played = await play(t, () => assert.fail());
    played.say(line);
    await assert.rejects(played.ended, (error) => error instanceof is && says.test(error.message));
    await played.hearsEnd();
  }
  delete process.env.VVM_SOCKET;
  await assert.rejects(run({}, () => {}), { name: "NotStarted", message: /start this program by/ });
  for (const [path, cause] of [["/nowhere/s", /ENOENT/], [`/${"x".repeat(108)}`, /EINVAL|ENAMETOOLONG|ENOENT/]]) {
    process.env.VVM_SOCKET = path;
    await assert.rejects(run({}, () => {}), (error) => {
      const text = error.message;
      return error instanceof NotStarted && cause.test(text) && text.endsWith("Has the `vvm` that set it ended?");
    });
  }
});

test("a socket that another user could replace is refused", limits, async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "warm-"));
  const server = net.createServer((socket) => socket.destroy()).listen(path.join(folder, "s"));
  await once(server, "listening");
  t.after(() => (server.close(), fs.rmSync(folder, { recursive: true })));
  process.env.VVM_SOCKET = path.join(folder, "s");
  for (const [mode, is] of [[0o777, NotStarted], [0o775, NotStarted], [0o1777, Closed], [0o755, Closed]]) {
    fs.chmodSync(folder, mode);
    await assert.rejects(run({}, () => {}), is, mode.toString(8));
  }
  if (process.geteuid() === 0) {
    fs.chownSync(folder, 12345, 0);
    await assert.rejects(run({}, () => {}), { name: "NotStarted", message: /is of user 12345/ });
  }
});
