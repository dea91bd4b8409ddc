//go:build linux

package warm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// Connects to the host. A folder that others may write to can have a socket of theirs, so the user that listens must be
// that of this program, or root.
func connect(ctx context.Context, path string) (*net.UnixConn, error) {
	socket, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if ctx.Err() != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	} else if err != nil {
		return nil, fmt.Errorf("%w: no host at VVM_SOCKET (%s): %w. Has the `vvm` that set it ended?", ErrNotStarted, path, err)
	}
	connection := socket.(*net.UnixConn)
	user, err := listener(connection)
	if err == nil && user != os.Geteuid() && user != 0 {
		const text = "%w: user %d listens at VVM_SOCKET (%s), and not user %d or root: start `vvm` as the user of this program or as root"
		err = fmt.Errorf(text, ErrNotStarted, user, path, os.Geteuid())
	}
	if err != nil {
		connection.Close()
		return nil, err
	}
	return connection, nil
}

// Returns the user of the process that listens. Replaced by tests.
var listener = func(socket *net.UnixConn) (user int, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *syscall.Ucred
	failed := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(failed, err); err != nil {
		return 0, err
	}
	return int(peer.Uid), nil
}
