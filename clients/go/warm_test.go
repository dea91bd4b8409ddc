//go:build linux

package warm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A host that says what a test wants, and keeps what it hears.
type played struct {
	*testing.T
	socket net.Conn
	lines  *bufio.Scanner
	ended  chan error
}

func now(t *testing.T) int64 {
	at, err := clock()
	if err != nil {
		t.Fatal(err)
	}
	return at.Milliseconds()
}

func hello(t *testing.T) string {
	return fmt.Sprintf(`{"type":"hello","version":1,"name":"payroll","now":%d}`, now(t))
}

// Starts Run in a goroutine, and accepts its connection.
func play(t *testing.T, ctx context.Context, lead func(context.Context, Term) error) *played {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	t.Setenv("VVM_SOCKET", path)
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, func(context.Context) error { return nil }, lead) }()
	socket, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return &played{t, socket, bufio.NewScanner(socket), ended}
}

func (p *played) say(line string) {
	if _, err := p.socket.Write([]byte(line + "\n")); err != nil {
		p.Fatal(err)
	}
}

func (p *played) hears(line string) {
	p.Helper()
	if !p.lines.Scan() || p.lines.Text() != line {
		p.Fatalf("%q is not %q", p.lines.Text(), line)
	}
}

func (p *played) lead(epoch int, lasts time.Duration) {
	const text = `{"type":"lead","slot":1,"epoch":"%d","stop_by":%d,"kill_at":0}`
	p.say(fmt.Sprintf(text, epoch, now(p.T)+lasts.Milliseconds()))
}

// Plays until `leading` is said.
func leads(t *testing.T, lasts time.Duration, lead func(context.Context, Term) error) *played {
	p := play(t, context.Background(), lead)
	p.say(hello(t))
	p.hears(`{"type":"hello","version":1,"client":"go"}`)
	p.hears(`{"type":"ready","ready":true}`)
	p.lead(7, lasts)
	p.hears(`{"type":"leading","epoch":"7"}`)
	return p
}

// Returns the error of Run after the host has closed the connection.
func (p *played) closed() error {
	p.socket.Close()
	return <-p.ended
}

func until(t *testing.T, condition func() bool) {
	for end := time.Now().Add(30 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 30 s")
		}
	}
}

func TestTermLastsUntilStopAndStoppedFollowsTheEndOfItsFunction(t *testing.T) {
	fenced, released := make(chan Term), make(chan struct{})
	p := leads(t, time.Minute, func(ctx context.Context, term Term) error {
		fenced <- term
		<-ctx.Done()
		<-released
		return ctx.Err()
	})
	term := <-fenced
	if epoch, err := term.Fence(); epoch != 7 || err != nil || term.Slot() != 1 {
		t.Fatal(epoch, err)
	}
	p.say(`{"type":"stop","epoch":"7","reason":"step_down","stop_by":0,"kill_at":0}`)
	<-term.ctx.Done()
	if _, err := term.Fence(); !errors.Is(err, ErrOver) || err.Error() != "epoch 7: the leadership is over: step_down" {
		t.Fatal(err)
	}
	p.socket.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if count, err := p.socket.Read(make([]byte, 1)); count > 0 || err == nil {
		t.Fatal("said something before its function has ended")
	}
	p.socket.SetReadDeadline(time.Time{})
	close(released)
	p.hears(`{"type":"stopped","epoch":"7"}`)
	if term.Epoch() != 7 || term.Remaining() != 0 {
		t.Fatal(term.Remaining())
	}
	// It goes on as a standby.
	p.lead(9, time.Minute)
	p.hears(`{"type":"leading","epoch":"9"}`)
	<-fenced
	if err := p.closed(); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

func TestTermEndsAtStopByWithoutAMessageAndNeverComesBack(t *testing.T) {
	terms := make(chan Term, 1)
	p := leads(t, 50*time.Millisecond, func(ctx context.Context, term Term) error {
		<-ctx.Done()
		terms <- term
		return ctx.Err()
	})
	p.hears(`{"type":"stopped","epoch":"7"}`)
	term := <-terms
	if cause := context.Cause(term.ctx).Error(); cause != "not renewed in time" {
		t.Fatal(cause)
	}
	p.say(fmt.Sprintf(`{"type":"renewed","epoch":"7","stop_by":%d}`, now(t)+60000))
	p.say(`{"type":"at_risk","epoch":"7"}`)
	until(t, term.AtRisk)
	if term.Remaining() != 0 {
		t.Fatal(term.Remaining())
	}
}

func TestSuspendCountsAndTheContextEndsSoonAfterIt(t *testing.T) {
	t.Run("by the clock", func(t *testing.T) { suspends(t, "") })
	const renewed = `{"type":"renewed","epoch":"7","stop_by":%d}`
	t.Run("though a renewal comes first", func(t *testing.T) { suspends(t, fmt.Sprintf(renewed, now(t)+240000)) })
}

func suspends(t *testing.T, says string) {
	real := clock
	var slept atomic.Int64
	clock = func() (time.Duration, error) {
		at, err := real()
		return at + time.Duration(slept.Load()), err
	}
	terms := make(chan Term)
	p := leads(t, time.Minute, func(ctx context.Context, term Term) error {
		terms <- term
		<-ctx.Done()
		return nil
	})
	// Joined before the clock is put back.
	t.Cleanup(func() { p.closed(); clock = real })
	term := <-terms
	slept.Store(int64(2 * time.Minute))
	if says != "" {
		p.say(says)
	}
	p.hears(`{"type":"stopped","epoch":"7"}`)
	if _, err := term.Fence(); !errors.Is(err, ErrOver) {
		t.Fatal(err)
	}
}

func TestRenewalMovesTheEndAndOtherMessagesChangeNothing(t *testing.T) {
	terms := make(chan Term)
	p := leads(t, time.Minute, func(ctx context.Context, term Term) error {
		terms <- term
		<-ctx.Done()
		return nil
	})
	term := <-terms
	p.say(`{"type":"renewed","epoch":"6","stop_by":0}`)
	p.say(`{"type":"stop","epoch":"8","reason":"lost"}`)
	p.say(`{"type":"of a later version","epoch":7,"slot":"other"}`)
	p.say(fmt.Sprintf(`{"type":"renewed","epoch":"7","stop_by":%d,"more":{}}`, now(t)+120000))
	until(t, func() bool { return term.Remaining() > time.Minute })
	term.Alive()
	p.hears(`{"type":"alive","epoch":"7"}`)
	term.Resign()
	p.hears(`{"type":"resign","epoch":"7"}`)
	// NEVER of the host: no Duration is so long.
	p.say(`{"type":"renewed","epoch":"7","stop_by":18446744073709551}`)
	until(t, func() bool { return term.Remaining() > 100*365*24*time.Hour })
}

func TestErrorOfTheFunctionIsSaidAndReturned(t *testing.T) {
	failed := errors.New("no \"database\"\n" + strings.Repeat("é", 5000))
	p := leads(t, time.Minute, func(context.Context, Term) error { return failed })
	p.hears(`{"type":"failed","epoch":"7","reason":"no \"database\"\n` + strings.Repeat("é", 486) + `"}`)
	if err := <-p.ended; err != failed {
		t.Fatal(err)
	}
}

func TestReadinessIsSaidByTheContextsOfBothFunctions(t *testing.T) {
	p := leads(t, time.Minute, func(ctx context.Context, _ Term) error {
		SetReady(ctx, false)
		<-ctx.Done()
		SetReady(ctx, true)
		return nil
	})
	p.hears(`{"type":"ready","ready":false}`)
	p.say(`{"type":"stop","epoch":"7","reason":"not_ready"}`)
	p.hears(`{"type":"ready","ready":true}`)
	p.hears(`{"type":"stopped","epoch":"7"}`)
}

func TestEndOfTheContextEndsTheTermAndRun(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	p := play(t, ctx, func(ctx context.Context, _ Term) error {
		cancel()
		<-ctx.Done()
		return nil
	})
	p.say(hello(t))
	p.lead(7, time.Minute)
	for _, line := range []string{`{"type":"hello","version":1,"client":"go"}`, `{"type":"ready","ready":true}`,
		`{"type":"leading","epoch":"7"}`, `{"type":"stopped","epoch":"7"}`} {
		p.hears(line)
	}
	if err := <-p.ended; err != context.Canceled {
		t.Fatal(err)
	}
}

func TestEndOfTheContextEndsTheWaitForHello(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	p := play(t, ctx, nil)
	cancel()
	if err := <-p.ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestWhatIsNoMessageEndsTheTerm(t *testing.T) {
	long := `{"type":"at_risk","epoch":"7","more":"` + strings.Repeat("x", 4096) + `"}`
	bad := []string{"[]", "{}", `{"type":"stop","epoch":7}`, `{"type":"lead","epoch":"x"}`, `{"type":"lead"}`, long}
	for _, line := range bad {
		p := leads(t, time.Minute, func(ctx context.Context, _ Term) error {
			<-ctx.Done()
			return ctx.Err()
		})
		p.say(line)
		p.hears(`{"type":"stopped","epoch":"7"}`)
		if err := <-p.ended; !errors.Is(err, ErrClosed) {
			t.Fatal(line, err)
		}
	}
}

func TestConnectionIsNotInheritedByAChild(t *testing.T) {
	child := exec.Command("sleep", "1000")
	p := leads(t, time.Minute, func(context.Context, Term) error {
		return errors.Join(child.Start(), errors.New("ends"))
	})
	p.hears(`{"type":"failed","epoch":"7","reason":"ends"}`)
	<-p.ended
	if p.lines.Scan() || p.lines.Err() != nil {
		t.Fatal("the connection is open in the child")
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	child.Wait()
}

func TestAnotherClockVersionOrParentIsRefused(t *testing.T) {
	changed := func(from, to string) string { return strings.Replace(hello(t), from, to, 1) }
	for _, row := range []struct {
		line string
		is   error
		says string
	}{
		{changed(`"now":`, `"now":9`), ErrOtherClock, "start `vvm` in the time namespace"},
		{changed(`"now":`, `"now":0,"then":`), ErrOtherClock, "CLOCK_BOOTTIME"},
		{changed(`n":1`, `n":2`), ErrRefused, "version 1, the host 2. Use `vvm` and client of one"},
		{"[]", ErrRefused, "Use `vvm` and client of one release"},
		{strings.Repeat("x", 4096), ErrRefused, "a line of more than 4096 bytes. Use `vvm`"},
		{`{"type":"refused","reason":"not of the app"}`, ErrRefused, "not of the app"},
	} {
		p := play(t, context.Background(), nil)
		p.say(row.line)
		if err := <-p.ended; !errors.Is(err, row.is) || !strings.Contains(err.Error(), row.says) {
			t.Fatal(row.line, err)
		}
		if p.lines.Scan() {
			t.Fatal("said ", p.lines.Text())
		}
	}
	for path, says := range map[string]string{
		"":                             "use `vvm run --warm",
		t.TempDir() + "/socket":        "no such file or directory. Has the `vvm` that set it ended?",
		"/" + strings.Repeat("x", 108): "invalid argument. Has the `vvm` that set it ended?",
	} {
		t.Setenv("VVM_SOCKET", path)
		err := Run(context.Background(), nil, nil)
		if !errors.Is(err, ErrNotStarted) || !strings.Contains(err.Error(), says) {
			t.Fatal(err)
		}
	}
}

func TestListenerOfAnotherUserIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	socket, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("VVM_SOCKET", path)
	real := listener
	defer func() { listener = real }()
	listener = func(socket *net.UnixConn) (int, error) {
		if user, err := real(socket); user != os.Geteuid() || err != nil {
			t.Error(user, err)
		}
		return os.Geteuid() + 1, nil
	}
	says := fmt.Sprintf("user %d listens", os.Geteuid()+1)
	if err := Run(context.Background(), nil, nil); !errors.Is(err, ErrNotStarted) || !strings.Contains(err.Error(), says) {
		t.Fatal(err)
	}
}
