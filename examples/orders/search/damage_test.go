package search

import (
	"errors"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/examples/orders/filelock"
)

func TestOnlyOneProcess(t *testing.T) {
	s := opened(t)
	if _, err := Open(Config{Path: s.path}); !errors.Is(err, filelock.ErrTaken) {
		t.Errorf("error %v", err)
	}
}

// A process that was killed while it created the index leaves nothing that
// matters.
func TestHalfCreated(t *testing.T) {
	for name, prepare := range map[string]func(path string) error{
		"an empty folder":   func(path string) error { return os.Mkdir(path, 0o700) },
		"an unfinished one": func(path string) error { return os.MkdirAll(filepath.Join(path+".new", "store"), 0o700) },
		"one that only lacks its name": func(path string) error {
			shut(t, open(t, path))
			return os.Rename(path, path+".new")
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "index")
			if err := prepare(path); err != nil {
				t.Fatal(err)
			}
			s := open(t, path)
			defer shut(t, s)
			s.handle(t, order("c1", 1))
			if s.count(t) != 1 {
				t.Errorf("%d orders", s.count(t))
			}
			if _, err := os.Stat(path + ".new"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the unfinished index is left: %v", err)
			}
		})
	}
}

// Whatever a file of the index loses, either nothing is missing, or the damage
// is reported. An index that has forgotten something is never opened as if it
// were whole.
func TestDamage(t *testing.T) {
	log.SetOutput(io.Discard) // the library's complaints
	defer log.SetOutput(os.Stderr)
	const orders = 40
	whole := filepath.Join(t.TempDir(), "index")
	s := open(t, whole)
	for range orders { // one after the other, so that there are several files
		s.handle(t, order("c1", 1))
	}
	shut(t, s)
	var files []string
	err := filepath.WalkDir(whole, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(whole, path)
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 3 {
		t.Fatalf("files %v", files)
	}
	reported := 0
	for _, file := range files {
		for name, damage := range map[string]func(path string, size int64) error{
			"gone":     func(path string, _ int64) error { return os.Remove(path) },
			"empty":    func(path string, _ int64) error { return os.Truncate(path, 0) },
			"half":     func(path string, size int64) error { return os.Truncate(path, size/2) },
			"cut":      func(path string, size int64) error { return os.Truncate(path, size-1) },
			"zeroed":   func(path string, size int64) error { return os.WriteFile(path, make([]byte, size), 0o600) },
			"as a dir": func(path string, _ int64) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		} {
			path := filepath.Join(t.TempDir(), "index")
			if err := os.CopyFS(path, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			damaged := filepath.Join(path, file)
			info, err := os.Stat(damaged)
			if err == nil {
				err = damage(damaged, info.Size())
			}
			if err != nil {
				t.Fatal(err)
			}
			s, err := Open(Config{Path: path})
			if err == nil {
				if n, err := s.Count(); err != nil || n != orders {
					t.Errorf("%s %s: opened with %d orders, %v", file, name, n, err)
				}
				shut(t, s)
				continue
			}
			reported++
			if _, again := Open(Config{Path: path}); again == nil {
				t.Errorf("%s %s: reported once and then forgotten; first it was %v", file, name, err)
			}
			if d, ok := errors.AsType[*DamagedError](err); !ok || d.Path != path || !strings.Contains(err.Error(), path) {
				t.Errorf("%s %s: %v", file, name, err)
			}
		}
	}
	t.Logf("%d of %d damages are reported, the others lose nothing", reported, 6*len(files))
	if reported < len(files) {
		t.Errorf("only %d reported", reported)
	}
}

func TestNotAnIndex(t *testing.T) {
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "precious.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Path: path}); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(filepath.Join(path, "precious.txt")); err != nil {
		t.Error(err)
	}
	if _, err := Open(Config{Path: filepath.Join(path, "none", "index")}); err == nil {
		t.Error("no error without the folder")
	}
}
