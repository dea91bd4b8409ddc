// The worker of `kills safety --client go`. Arguments: `work`, its folder.
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"vvm/warm"
)

func boottime() int64 {
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 7, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func serve(ctx context.Context, term warm.Term) error {
	if ctx.Err() != nil {
		return nil
	}
	folder := os.Args[2]
	if term.Epoch()%2 == 0 {
		signal.Ignore(syscall.SIGHUP)
	}
	background := exec.Command("sleep", "1000")
	background.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	must(0, background.Start())
	stat := string(must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", os.Getppid()))))
	host := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])[1]
	must(0, os.WriteFile(folder+"/lock", []byte(fmt.Sprint(os.Getpid())), 0o644))
	name := fmt.Sprintf("%s/worker-%d-%d", folder, os.Getpid(), term.Epoch())
	file := must(os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o644))
	defer file.Close()
	program := os.Getenv("SAFETY_PROGRAM")
	fmt.Fprintf(file, "%d %s %d %s %d unlocked\n", os.Getpid(), host, background.Process.Pid, program, term.Epoch())
	beat := func() { fmt.Fprintf(file, "%d\n", boottime()) }
	for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			tick.Stop()
		case <-tick.C:
			beat()
			switch rand.Intn(1000) {
			case 0:
				term.Resign()
			case 1:
				warm.SetReady(ctx, false)
			}
		}
	}
	must(0, background.Process.Kill())
	background.Wait()
	beat()
	fmt.Fprintln(file, "stopped")
	must(0, os.Truncate(folder+"/lock", 0))
	warm.SetReady(ctx, true)
	return nil
}

func main() {
	build := func(context.Context) error { return nil }
	log.Fatal(warm.Run(context.Background(), build, serve))
}
