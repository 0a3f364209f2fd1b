// Package filelock keeps two processes from using the same data at the same
// time.
package filelock

import (
	"errors"
	"os"
)

// ErrTaken means that another process, or another part of this one, has the
// lock.
var ErrTaken = errors.New("another process is using it")

// Lock opens the file, creates it if there is none, and locks it until it is
// closed. It does not wait: ErrTaken if it is locked. The kernel frees the lock
// when the process ends, however it ends. On systems that are no Unix the error
// is errors.ErrUnsupported.
func Lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
