package search

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/index/scorch"

	"github.com/postrider/postrider/examples/orders/filelock"
)

// DamagedError means that the index is there and not whole, after a disk error
// for example. (A process that is killed damages nothing.) Its orders cannot be
// had back from it.
type DamagedError struct {
	Path string
	Err  error
}

func (e *DamagedError) Error() string { return "the index is damaged: " + e.Err.Error() }
func (e *DamagedError) Unwrap() error { return e.Err }

// Hint says what to do.
func (e *DamagedError) Hint() string {
	return "restore " + e.Path + " from a copy, or move it away to begin with an empty index, to which the orders have to be announced again"
}

var (
	// serialKey is where the index keeps the serial number of its last write. The
	// library opens an older state of the index when it cannot read the newest;
	// the number tells.
	serialKey = []byte("serial")

	errOlderState = errors.New("its newest state cannot be read")
)

// lockTimeout is how long the library waits for its own lock, in Go's notation.
const lockTimeout = "5s"

func (s *Service) open() (err error) {
	if s.lock, err = filelock.Lock(s.path + ".lock"); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	// Serial numbers of this process must be no other's.
	s.serial.Store(uint64(time.Now().UnixNano()))
	if missing, err := isMissing(s.path); err != nil {
		return err
	} else if missing {
		if err := s.create(); err != nil {
			return err
		}
	}
	if err := protect(s.load); err != nil {
		return &DamagedError{Path: s.path, Err: err}
	}
	return nil
}

func isMissing(path string) (bool, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return len(entries) == 0, err
}

// create makes an empty index under another name and renames it when it is
// whole, so that whatever has the index's name is one.
func (s *Service) create() error {
	unfinished := s.path + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	mapping, err := newMapping()
	if err != nil {
		return err
	}
	index, err := bleve.NewUsing(unfinished, mapping, bleve.Config.DefaultIndexType, bleve.Config.DefaultKVStore, nil)
	if err != nil {
		return err
	}
	err = index.SetInternal(serialKey, s.nextSerial())
	if err := errors.Join(err, index.Close()); err != nil {
		return err
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) { // an empty folder
		return err
	}
	if err := os.Rename(unfinished, s.path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(s.path))
}

// load opens an index that exists, in its newest state. It looks at it without
// writing first: opened for writing, the library would remove a newest state
// that it cannot read, and nothing would tell afterwards that it was there.
func (s *Service) load() error {
	store := filepath.Join(s.path, "store")
	if _, err := os.Stat(filepath.Join(store, "root.bolt")); err != nil {
		return fmt.Errorf("this is no index: %w", err)
	}
	states, err := scorch.RollbackPoints(store)
	if err != nil {
		return err
	}
	if len(states) == 0 {
		return errors.New("it has no state that can be read")
	}
	looked, err := bleve.OpenUsing(s.path, map[string]any{"bolt_timeout": lockTimeout, "read_only": true})
	if err != nil {
		return err
	}
	serial, err := looked.GetInternal(serialKey)
	if err == nil && (len(serial) == 0 || !bytes.Equal(serial, states[0].GetInternal(serialKey))) {
		err = errOlderState
	}
	if err := errors.Join(err, looked.Close()); err != nil {
		return err
	}
	s.index, err = bleve.OpenUsing(s.path, map[string]any{"bolt_timeout": lockTimeout})
	return err
}

// protect turns panics over unreadable files, and accesses to mapped files that
// are shorter than they should be, into errors.
func protect(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reading it failed: %v", p)
		}
	}()
	return f()
}

// syncFolder makes a rename in the folder last.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

func (s *Service) nextSerial() []byte {
	return binary.BigEndian.AppendUint64(nil, s.serial.Add(1))
}

func (s *Service) unlock() error {
	if s.lock == nil {
		return nil
	}
	return s.lock.Close()
}
