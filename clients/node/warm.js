// A client of `vvm run --warm`. warm.d.ts describes what it exports.

import fs from "node:fs";
import net from "node:net";
import path from "node:path";

const VERSION = 1;
const LONGEST_LINE = 4096;
// Node's timers stop in a suspend, so the clock is read at least so often.
const LOOK = 500;
const RESOLUTION = 11; // Of /proc/uptime and the host's `now`, which are rounded down.
const REMEDY = "Use `vvm` and client of one release";

class Named extends Error {
  get name() {
    return this.constructor.name;
  }
}
export class NotStarted extends Named {}
export class Refused extends Named {}
export class Closed extends Named {}
export class TermOver extends Named {}

let uptime;
// Returns the milliseconds since the start of the machine, or of the container (lxcfs). Suspend counts, as in no clock
// of Node's.
function sinceStart() {
  uptime ??= fs.openSync("/proc/uptime"); // Once: a process may have no descriptor left.
  const text = Buffer.alloc(64);
  fs.readSync(uptime, text, 0, text.length, 0);
  return Math.round(Number.parseFloat(text.latin1Slice()) * 1000);
}

function number(value) {
  if (typeof value !== "number") {
    throw new TypeError(`${JSON.stringify(value)} is no number`);
  }
  return value;
}

// Fails unless the socket is of this user or root, and no other user can replace it: Node can't ask who listens. Those
// who own the root folder could replace anything, and have another number in a user namespace.
function checkListener(socket) {
  const users = [process.geteuid(), 0, fs.lstatSync("/").uid];
  const refuse = (what) => {
    throw new NotStarted(`VVM_SOCKET (${socket}) may not be of \`vvm\`: ${what}. Set TMPDIR to a folder of one user`);
  };
  const real = fs.realpathSync(socket);
  for (let at = real; ; at = path.dirname(at)) {
    const { uid, mode } = fs.lstatSync(at);
    if (!users.includes(uid)) {
      refuse(`${at} is of user ${uid}, and this is user ${users[0]}`);
    } else if (at !== real && mode & 0o022 && !(mode & 0o1000)) {
      refuse(`others may write to ${at}`);
    } else if (at === "/") {
      return;
    }
  }
}

// One leadership. `term` is what the work gets of it.
class Leadership {
  #host;
  #stopBy;
  #controller = new AbortController();
  #timer;

  constructor(host, lead) {
    const epoch = BigInt(lead.epoch);
    const { signal } = this.#controller;
    this.#host = host;
    this.#stopBy = number(lead.stop_by);
    this.epoch = String(epoch);
    this.say = (type, more) => host.say({ type, epoch: this.epoch, ...more });
    this.term = {
      epoch,
      slot: number(lead.slot),
      signal,
      atRisk: false,
      remaining: () => this.remaining(),
      fence: () => {
        if (this.remaining() === 0) {
          throw signal.reason;
        }
        return epoch;
      },
      alive: () => this.say("alive"),
      resign: () => this.say("resign"),
    };
    this.#look();
  }

  // Aborts the signal at `stopBy`, without a message.
  #look() {
    const left = this.remaining();
    if (left > 0) {
      this.#timer = setTimeout(() => this.#look(), Math.min(left, LOOK));
    }
  }

  remaining() {
    const left = this.#stopBy - this.#host.now();
    if (!this.term.signal.aborted && left > 0) {
      return left;
    }
    // No renewal counts after this: another process may lead soon.
    this.stop("not renewed in time");
    return 0;
  }

  moved(stopBy) {
    if (this.remaining() > 0) {
      this.#stopBy = number(stopBy);
      this.term.atRisk = false;
    }
  }

  stop(reason) {
    if (!this.term.signal.aborted) { // The first reason stands.
      clearTimeout(this.#timer);
      this.#controller.abort(new TermOver(`epoch ${this.epoch}: ${reason}`));
    }
  }
}

// The connection to the host.
class Host {
  #began = sinceStart();
  #ahead;
  #socket;
  #buffer = Buffer.alloc(0);
  greeted = false;
  #isOpen = false;
  #leadership;
  #taken;
  #end;
  #wake = () => {};

  constructor(path) {
    const notStarted = (error) => {
      const text = `no host at VVM_SOCKET (${path}): ${error.message}. Has the \`vvm\` that set it ended?`;
      return new NotStarted(text, { cause: error });
    };
    try {
      checkListener(path);
    } catch (error) {
      throw error instanceof Named ? error : notStarted(error);
    }
    this.#socket = net.connect(path, () => (this.#isOpen = true));
    this.#socket.on("data", (bytes) => this.#receive(bytes));
    this.#socket.on("close", () => this.#ends(new Closed("the host has closed the connection")));
    this.#socket.on("error", (error) => {
      this.#ends(this.#isOpen ? new Closed(error.message, { cause: error }) : notStarted(error));
    });
  }

  say(message) {
    this.#socket.write(`${JSON.stringify(message)}\n`);
  }

  setReady(ready) {
    this.say({ type: "ready", ready });
  }

  // Returns the milliseconds of CLOCK_BOOTTIME, the clock of the host's deadlines. Never earlier than it is, so that no
  // term lasts too long: the host has read its clock after this program began to connect.
  now() {
    return sinceStart() + RESOLUTION + this.#ahead;
  }

  // Waits for what `found` returns, or until the signal is aborted.
  async until(found, signal) {
    for (let value; !signal?.aborted; ) {
      if ((value = found())) {
        return value;
      } else if (this.#end) {
        throw this.#end;
      }
      await new Promise((wake) => (this.#wake = wake));
    }
  }

  async next(signal) {
    const isNew = () => this.#leadership !== this.#taken && !this.#end;
    return (this.#taken = await this.until(() => isNew() && this.#leadership, signal));
  }

  stop() {
    this.#leadership?.stop("this program ends");
    this.#wake();
  }

  close() {
    this.#end ??= new Closed("this program has closed the connection");
    this.stop();
    this.#socket.destroySoon();
  }

  #ends(error) {
    this.#end ??= error; // The first one stands.
    this.#leadership?.stop(this.#end.message);
    this.#socket.destroy();
    this.#wake();
  }

  #receive(bytes) {
    this.#buffer = Buffer.concat([this.#buffer, bytes]);
    try {
      for (let end = 0; end >= 0 && !this.#end; ) {
        end = this.#buffer.indexOf(10);
        if ((end < 0 ? this.#buffer.length : end) >= LONGEST_LINE) {
          throw new RangeError(`a line of more than ${LONGEST_LINE} bytes`);
        } else if (end >= 0) {
          const line = this.#buffer.toString("utf8", 0, end);
          this.#buffer = this.#buffer.subarray(end + 1);
          this.#handle(JSON.parse(line));
        }
      }
    } catch (error) {
      // Nothing of it counts. The term ends here, and the kill deadline holds in any case.
      const isOurs = error instanceof Named;
      const text = `the host can't be understood: ${error.message}. ${REMEDY}`;
      this.#ends(isOurs ? error : new Closed(text, { cause: error }));
    }
    this.#wake();
  }

  #handle(message) {
    const leadership = this.#leadership;
    if (typeof message?.type !== "string") {
      throw new TypeError("a message without a type");
    } else if (message.type === "refused") {
      throw new Refused(message.reason);
    } else if (!this.greeted) {
      this.#greet(message);
    } else if (message.type === "lead") {
      leadership?.stop("another leadership has begun");
      this.#leadership = new Leadership(this, message);
    } else if (!leadership || leadership.epoch !== message.epoch) {
      return;
    } else if (message.type === "renewed") {
      leadership.moved(message.stop_by);
    } else if (message.type === "at_risk") {
      leadership.term.atRisk = true;
    } else if (message.type === "stop") {
      leadership.stop(message.reason);
    }
  }

  // Answers the host's hello, and not before: what a refused process has sent would reset the connection.
  #greet(hello) {
    if (hello.type !== "hello" || hello.version !== VERSION) {
      throw new Refused(`this client speaks version ${VERSION}, the host says ${JSON.stringify(hello)}. ${REMEDY}`);
    }
    this.#ahead = number(hello.now) - this.#began;
    this.greeted = true;
    this.say({ type: "hello", version: VERSION, client: "node" });
  }
}

export async function run({ ready, signal }, lead) {
  const path = process.env.VVM_SOCKET;
  if (!path) {
    throw new NotStarted("VVM_SOCKET is not set: start this program by `vvm run --warm … -- PROGRAM`");
  }
  const host = new Host(path);
  const aborted = () => host.stop();
  const handle = { setReady: (ready) => host.setReady(Boolean(ready)) };
  signal?.addEventListener("abort", aborted);
  try {
    await host.until(() => host.greeted, signal);
    if (!signal?.aborted) {
      await ready?.(handle);
      host.setReady(true);
    }
    for (let leadership; (leadership = await host.next(signal)); ) {
      leadership.say("leading");
      try {
        await lead(leadership.term, handle);
      } catch (error) {
        const isStop = error instanceof TermOver || error?.name === "AbortError";
        if (!isStop || leadership.remaining() > 0) {
          console.error(error); // The host ends this process at once.
          leadership.stop("its work has failed");
          // A cut surrogate pair is no text that JSON can carry.
          const reason = Buffer.from(String(error).slice(0, 500)).toString();
          leadership.say("failed", { reason });
          throw error;
        }
      }
      leadership.stop("its work has ended");
      leadership.say("stopped");
    }
  } finally {
    signal?.removeEventListener("abort", aborted);
    host.close();
  }
}
