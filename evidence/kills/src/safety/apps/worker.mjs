// The worker of `kills safety --client node`. Arguments: `work`, its folder.

import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const warm = await import(process.env.SAFETY_CLIENT);

const folder = process.argv[3];

// CLOCK_BOOTTIME, unless this machine was suspended since it was booted: Node has no exact clock that counts it.
const now = () => process.hrtime.bigint();
const uptime = Number.parseFloat(fs.readFileSync("/proc/uptime", "utf8"));
if (Math.abs(uptime - Number(now()) / 1e9) > 1) {
  throw new Error("this machine was suspended: Node can't tell the time of its logs");
}

async function serve(term, host) {
  if (term.signal.aborted) {
    return;
  }
  if (term.epoch % 2n === 0n) {
    process.on("SIGHUP", () => {});
  }
  const background = spawn("sleep", ["1000"], { detached: true, stdio: "ignore" });
  const ended = once(background, "exit");
  const keeper = fs.readFileSync(`/proc/${process.ppid}/stat`, "latin1");
  const parent = keeper.slice(keeper.lastIndexOf(")") + 2).split(" ")[1];
  fs.writeFileSync(`${folder}/lock`, String(process.pid));
  const log = fs.openSync(`${folder}/worker-${process.pid}-${term.epoch}`, "ax");
  const head = [process.pid, parent, background.pid, process.env.SAFETY_PROGRAM, term.epoch, "unlocked"];
  fs.writeSync(log, `${head.join(" ")}\n`);
  const beat = () => fs.writeSync(log, `${now()}\n`);
  while (!term.signal.aborted) {
    beat();
    const draw = Math.floor(Math.random() * 1000);
    if (draw === 0) {
      term.resign();
    } else if (draw === 1) {
      host.setReady(false);
    }
    await sleep(5);
  }
  background.kill("SIGKILL");
  await ended;
  beat();
  fs.writeSync(log, "stopped\n");
  fs.closeSync(log);
  fs.truncateSync(`${folder}/lock`);
  host.setReady(true);
}

await warm.run({}, serve);
