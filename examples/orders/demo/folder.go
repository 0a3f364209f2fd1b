package demo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/postrider/postrider/examples/orders/filelock"
)

// Variables of the emulator, which reads them before main begins.
const (
	dataVariable  = "KUMO_DATA_DIR"
	flushVariable = "KUMO_PERSIST_FLUSH_INTERVAL_MS"
	flushEvery    = "100" // milliseconds
)

// folder is where one run keeps its data.
type folder struct {
	path      string
	temporary bool
	lock      *os.File
}

// open makes or reuses the folder of a run. It starts this program anew where
// the environment does not tell the emulator to keep its data there (or, for a
// temporary folder, nowhere).
func open(o Options) (*folder, error) {
	if o.Keep == "" {
		if err := restartWith(""); err != nil {
			return nil, err
		}
		path, err := os.MkdirTemp("", "orders-demo-")
		if err != nil {
			return nil, fmt.Errorf("make a folder for the demo's data: %w", err)
		}
		return &folder{path: path, temporary: true}, nil
	}
	// What is in the emulator belongs to what is in the database, so each kind
	// of database has a folder of its own.
	kind := "sqlite"
	if o.Postgres != "" {
		kind = "postgres"
	}
	path, err := filepath.Abs(filepath.Join(o.Keep, kind))
	if err != nil {
		return nil, fmt.Errorf("find the folder of the demo's data: %w", err)
	}
	f := &folder{path: path}
	// A PostgreSQL server started by root runs as another user, who must pass.
	if err := os.MkdirAll(f.emulator(), 0o755); err != nil {
		return nil, fmt.Errorf("make a folder for the demo's data: %w", err)
	}
	if err := restartWith(f.emulator()); err != nil {
		return nil, err
	}
	if f.lock, err = filelock.Lock(filepath.Join(path, "lock")); errors.Is(err, filelock.ErrTaken) {
		return nil, &SetupError{fmt.Errorf("lock %s: %w", path, err), "another demo is using the folder: stop it, or choose another one with --keep"}
	} else if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// restartWith replaces this process by the same program with the emulator's
// folder in its environment, unless it is there.
func restartWith(dir string) error {
	if os.Getenv(dataVariable) == dir {
		return nil
	}
	program, err := os.Executable()
	if err == nil {
		err = errors.Join(os.Setenv(dataVariable, dir), os.Setenv(flushVariable, flushEvery))
	}
	if err == nil {
		err = syscall.Exec(program, os.Args, os.Environ())
	}
	return fmt.Errorf("start again with %s=%s, which the emulator needs: %w", dataVariable, dir, err)
}

func (f *folder) emulator() string { return filepath.Join(f.path, "aws") }

// sqlite is the file of one database.
func (f *folder) sqlite(name string) string { return filepath.Join(f.path, name+".db") }

// index is the folder of the search index.
func (f *folder) index() string { return filepath.Join(f.path, "search.bleve") }

// mails is the file of the mailbox; empty for one that is not kept.
func (f *folder) mails() string {
	if f.temporary {
		return ""
	}
	return filepath.Join(f.path, "mails.jsonl")
}

// postgres is the folder of the demo's own server; empty for one that removes
// its data itself.
func (f *folder) postgres() string {
	if f.temporary {
		return ""
	}
	return filepath.Join(f.path, "server")
}

func (f *folder) String() string {
	if f.temporary {
		return f.path + ", removed at the end (--keep DIR keeps it)"
	}
	return f.path
}

// close removes a temporary folder.
func (f *folder) close() error {
	if f.temporary {
		return os.RemoveAll(f.path)
	}
	return f.lock.Close()
}
