//go:build linux

// Package warm makes a program a warm standby under `vvm run --warm`: ready before it leads, told when it leads, and
// dead by the deadline if it hangs.
package warm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	version          = 1
	longestLine      = 4096
	helloTakesAtMost = time.Minute            // A busier host misses its own deadlines. A clock further away is another one.
	look             = 500 * time.Millisecond // Go's timers stop in a suspend, so the clock is read at least so often.
	boottime         = 7                      // CLOCK_BOOTTIME of <linux/time.h>: the clock of the host's deadlines. Go's own omits suspend.
	remedy           = "Use `vvm` and client of one release"
)

// Why Run fails, beside the errors of its functions. The errors that it returns wrap these, and say more.
var (
	ErrNotStarted = errors.New("this program was not started by `vvm run --warm`")
	ErrRefused    = errors.New("the host has refused the connection")
	ErrOtherClock = errors.New("CLOCK_BOOTTIME is not the host's: start `vvm` in the time namespace of this program")
	ErrClosed     = errors.New("the connection to the host is closed")
	ErrOver       = errors.New("the leadership is over")
)

// Replaced by tests.
var clock = func() (time.Duration, error) {
	var now syscall.Timespec
	_, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, boottime, uintptr(unsafe.Pointer(&now)), 0)
	if failed != 0 {
		return 0, failed
	}
	return time.Duration(now.Nano()), nil
}

// Term is one leadership. Its methods may be called from any goroutine.
type Term struct{ *term }

type term struct {
	client *client
	slot   int
	epoch  int64
	ctx    context.Context // done once the work has to stop: the first reason stands
	cancel context.CancelCauseFunc
	stopBy atomic.Int64 // a time.Duration of the clock
	atRisk atomic.Bool
}

// Epoch returns the fencing token. It stays readable after the term.
func (t Term) Epoch() int64 { return t.epoch }

// Slot returns the number of the slot, from 1.
func (t Term) Slot() int { return t.slot }

// AtRisk reports whether no renewal was confirmed for half a TTL.
func (t Term) AtRisk() bool { return t.atRisk.Load() }

// Alive says that the work goes on. With --alive-within, call it from the work, often enough.
func (t Term) Alive() { t.say("alive") }

// Resign asks the host to end this leadership. Go on until the context is done.
func (t Term) Resign() { t.say("resign") }

// Remaining returns how long the work may go on if no renewal is confirmed. Zero once it has to stop.
func (t Term) Remaining() time.Duration {
	now, err := clock()
	left := time.Duration(t.stopBy.Load()) - now
	if t.ctx.Err() == nil && err == nil && left > 0 {
		return left
	}
	// No renewal counts after this: another process may lead soon.
	t.stop("not renewed in time")
	return 0
}

// Fence returns the epoch, for the next write. It fails with ErrOver once the work has to stop.
func (t Term) Fence() (int64, error) {
	if t.Remaining() == 0 {
		return 0, fmt.Errorf("epoch %d: %w: %w", t.epoch, ErrOver, context.Cause(t.ctx))
	}
	return t.epoch, nil
}

func (t Term) stop(reason string) {
	if t.term != nil {
		t.cancel(errors.New(reason))
	}
}

func (t Term) say(kind string) { t.client.say(fmt.Sprintf(`{"type":%q,"epoch":"%d"}`, kind, t.epoch)) }

// Cancels the context at stopBy, without a message.
func (t Term) watch() {
	defer t.client.running.Done()
	for left := t.Remaining(); left > 0; left = t.Remaining() {
		select {
		case <-t.ctx.Done():
		case <-time.After(min(left, look)):
		}
	}
}

type message struct {
	Type    string       `json:"type"`
	Version int          `json:"version"`
	Now     milliseconds `json:"now"`
	Slot    int          `json:"slot"`
	Epoch   int64        `json:"epoch,string"`
	StopBy  milliseconds `json:"stop_by"`
	Reason  string       `json:"reason"`
}

type milliseconds uint64

func (n milliseconds) duration() time.Duration {
	return time.Duration(min(n, math.MaxInt64/1_000_000)) * time.Millisecond
}

type client struct {
	ctx     context.Context
	socket  net.Conn
	lines   *bufio.Reader
	sending sync.Mutex
	running sync.WaitGroup // the goroutines of this package
	leads   chan Term
	closed  chan struct{} // closed once no message follows, because of err
	err     error
	newest  Term
}

// Run connects to the host that started this program, calls build, says that this process could lead, and calls lead
// for each leadership. The context of lead is done when the work has to stop. Return from lead when the work has
// stopped: then the host has this process killed, and starts a new one as a standby.
//
// Run returns what build or lead fails with, the cause of ctx once that is done, or an error of this package.
func Run(ctx context.Context, build func(context.Context) error, lead func(context.Context, Term) error) error {
	path := os.Getenv("VVM_SOCKET")
	if path == "" {
		return fmt.Errorf("%w: VVM_SOCKET is not set: use `vvm run --warm … -- PROGRAM`", ErrNotStarted)
	}
	socket, err := connect(ctx, path)
	if err != nil {
		return err
	}
	c := &client{socket: socket, lines: bufio.NewReaderSize(socket, longestLine)}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, (*client)(nil), c))
	c.ctx, c.leads, c.closed = ctx, make(chan Term, 1), make(chan struct{})
	defer c.running.Wait()
	defer cancel()
	defer socket.Close()
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	if err = c.greet(); !stop() {
		return context.Cause(ctx)
	} else if err != nil {
		return err
	}
	c.running.Add(1)
	go c.listen()
	if err := build(ctx); err != nil {
		return err
	}
	SetReady(ctx, true)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.closed:
			return c.err
		case t := <-c.leads:
			t.say("leading")
			err := lead(t.ctx, t)
			if t.Remaining() == 0 && (errors.Is(err, context.Canceled) || errors.Is(err, ErrOver)) {
				err = nil
			}
			t.stop("its work has ended")
			if err != nil {
				reason, _ := json.Marshal(fmt.Sprintf("%.500s", err)) // A text always has JSON.
				c.say(fmt.Sprintf(`{"type":"failed","epoch":"%d","reason":%s}`, t.epoch, reason))
				return err
			}
			t.say("stopped")
		}
	}
}

// SetReady says whether this process could lead. False while leading resigns. A process that is kept after a resignation
// leads again only after true. It panics unless ctx is the context of build or lead, or made of it.
func SetReady(ctx context.Context, ready bool) {
	ctx.Value((*client)(nil)).(*client).say(fmt.Sprintf(`{"type":"ready","ready":%t}`, ready))
}

// Reads the host's hello before it answers: what a refused process has sent would reset the connection.
func (c *client) greet() error {
	hello, err := c.read()
	now, failed := clock()
	switch sent := hello.Now.duration(); {
	case errors.Is(err, ErrRefused):
		return err
	case err != nil:
		return fmt.Errorf("%w: no hello: %w. "+remedy, ErrRefused, err)
	case hello.Type != "hello" || hello.Version != version:
		return fmt.Errorf("%w: this client speaks version %d, the host %d. "+remedy, ErrRefused, version, hello.Version)
	// Rounded down by the host, so never later than our own clock, if it is the same.
	case failed != nil || now < sent || now-sent > helloTakesAtMost:
		return errors.Join(ErrOtherClock, failed)
	}
	c.say(fmt.Sprintf(`{"type":"hello","version":%d,"client":"go"}`, version))
	return nil
}

// Of a message of an unknown type, only the type is read. Fails with ErrRefused if that is what the host says.
func (c *client) read() (heard message, err error) {
	var kind struct{ Type string }
	line, err := c.lines.ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(line, &kind)
	} else if err == bufio.ErrBufferFull {
		err = fmt.Errorf("a line of more than %d bytes", longestLine)
	}
	if err != nil {
		return heard, err
	}
	switch kind.Type {
	case "hello", "lead", "renewed", "at_risk", "stop", "refused":
		err = json.Unmarshal(line, &heard)
	case "":
		err = errors.New("a message without a type")
	}
	if heard.Type == "refused" {
		err = fmt.Errorf("%w: %s", ErrRefused, heard.Reason)
	}
	return heard, err
}

func (c *client) listen() {
	defer c.running.Done()
	defer close(c.closed)
	for c.err == nil {
		if err := c.handle(c.read()); err != nil {
			// Nothing of it counts. The term ends here, and the kill deadline holds in any case.
			c.err = fmt.Errorf("%w: %w", ErrClosed, err)
		}
	}
	c.newest.stop(c.err.Error())
}

func (c *client) handle(heard message, err error) error {
	t := c.newest
	switch isMine := t.term != nil && heard.Epoch == t.epoch; {
	case err != nil:
		return err
	case heard.Type == "lead" && heard.Epoch > 0:
		t.stop("another leadership has begun")
		t = Term{&term{client: c, slot: heard.Slot, epoch: heard.Epoch}}
		t.ctx, t.cancel = context.WithCancelCause(c.ctx)
		t.stopBy.Store(int64(heard.StopBy.duration()))
		c.newest = t
		select {
		case c.leads <- t:
			c.running.Add(1)
			go t.watch()
		default:
			return errors.New("a third leadership before the end of the first")
		}
	case heard.Type == "lead":
		return errors.New("a leadership without an epoch")
	case heard.Type == "renewed" && isMine && t.Remaining() > 0:
		t.stopBy.Store(int64(heard.StopBy.duration()))
		t.atRisk.Store(false)
	case heard.Type == "at_risk" && isMine:
		t.atRisk.Store(true)
	case heard.Type == "stop" && isMine:
		t.stop(heard.Reason)
	}
	return nil
}

// A connection that is lost is noticed by the goroutine that reads.
func (c *client) say(line string) {
	c.sending.Lock()
	defer c.sending.Unlock()
	_, _ = c.socket.Write([]byte(line + "\n"))
}
