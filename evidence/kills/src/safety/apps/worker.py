"""The worker of `kills safety --client python`. Arguments: `work`, its folder."""

import os
import random
import signal
import subprocess
import sys
import time

import vvm_warm

folder = sys.argv[2]
me = os.getpid()


class Work:
    def __init__(self, epoch):
        if epoch % 2 == 0:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.background = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        with open(f"/proc/{os.getppid()}/stat") as keeper:
            host = keeper.read().rsplit(")", 1)[1].split()[1]
        with open(f"{folder}/lock", "w") as works:
            works.write(str(me))
        self.log = open(f"{folder}/worker-{me}-{epoch}", "xb", buffering=0)
        head = f"{me} {host} {self.background.pid} {os.environ['SAFETY_PROGRAM']} {epoch} unlocked\n"
        self.log.write(head.encode())

    def beat(self):
        self.log.write(b"%d\n" % time.clock_gettime_ns(time.CLOCK_BOOTTIME))

    def end(self):
        self.background.kill()
        self.background.wait()
        self.beat()
        self.log.write(b"stopped\n")
        os.truncate(f"{folder}/lock", 0)


with vvm_warm.connect() as host:
    host.ready()
    while term := host.next_term():
        with term:
            if term.is_over():
                continue
            work = Work(term.epoch)
            while not term.wait(0.005):
                work.beat()
                draw = random.randrange(1000)
                if draw == 0:
                    term.resign()
                elif draw == 1:
                    host.ready(False)
            work.end()
        host.ready()
