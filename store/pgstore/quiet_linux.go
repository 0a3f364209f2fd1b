package pgstore

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// smallTransfer is how many bytes are read or written at most without the
// runtime's knowledge, which takes microseconds. pgx reads into 8 KiB.
const smallTransfer = 8 << 10

// quietConn reads and writes small amounts with system calls that the runtime is
// not told of. Its sockets do not block: where nothing can be read or written
// yet, the runtime's poller waits, and deadlines hold, as on any net.Conn.
type quietConn struct {
	net.Conn
	raw syscall.RawConn
}

func quiet(conn net.Conn) net.Conn {
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return conn // what does more than a socket, as one through a proxy
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return conn
	}
	return &quietConn{conn, raw}
}

func (c *quietConn) Read(p []byte) (n int, err error) {
	if len(p) == 0 || len(p) > smallTransfer {
		return c.Conn.Read(p)
	}
	var failed syscall.Errno
	err = c.raw.Read(func(fd uintptr) bool {
		n, failed = transfer(syscall.SYS_READ, fd, p)
		return failed != syscall.EAGAIN
	})
	switch {
	case err != nil:
		return 0, err
	case failed != 0:
		return 0, c.failed("read", failed)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (c *quietConn) Write(p []byte) (n int, err error) {
	if len(p) > smallTransfer {
		return c.Conn.Write(p)
	}
	for n < len(p) && err == nil {
		var wrote int
		var failed syscall.Errno
		err = c.raw.Write(func(fd uintptr) bool {
			wrote, failed = transfer(syscall.SYS_WRITE, fd, p[n:])
			return failed != syscall.EAGAIN
		})
		if err == nil && failed != 0 {
			err = c.failed("write", failed)
		}
		n += wrote
	}
	return n, err
}

func (c *quietConn) failed(op string, errno syscall.Errno) error {
	return &net.OpError{Op: op, Net: c.RemoteAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, errno)}
}

// transfer is one read or write of p, which is not empty.
func transfer(call, fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		switch errno {
		case 0:
			return int(n), 0
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}
