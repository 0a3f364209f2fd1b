//go:build linux || darwin

package pgserver

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

var errLocked = errors.New("locked by another process")

// lockNow takes the lock on a file, which lasts until the file is closed or the
// process ends, or returns errLocked.
func lockNow(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, err
	}
	return f, nil
}

// lockWait takes the lock on a file as soon as it is free.
func lockWait(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := lockNow(path)
		if !errors.Is(err, errLocked) {
			return f, err
		}
		if !pause(ctx, 20*time.Millisecond) {
			return nil, context.Cause(ctx)
		}
	}
}
