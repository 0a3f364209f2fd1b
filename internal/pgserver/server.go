//go:build linux || darwin

package pgserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Server is one PostgreSQL server, running or stopped. Its methods may be called
// from several goroutines; they take turns. It has no goroutine of its own.
type Server struct {
	dir       string
	temporary bool
	logPath   string
	password  string
	settings  map[string]string
	bin       binaries
	user      account

	mu        sync.Mutex
	port      int
	pid       int // 0 while stopped
	lock      *os.File
	watchdog  *watchdog
	container *container // instead of a process of this machine; nil as a rule
	closed    bool
}

// Start makes or reuses a cluster and runs a server on it. It returns once the
// server answers; if it does not, everything that was started is ended again and
// the error holds the end of the server's log.
func Start(ctx context.Context, o Options) (*Server, error) {
	for _, name := range []string{"port", "listen_addresses", "data_directory", "unix_socket_directories"} {
		if _, ok := o.Settings[name]; ok {
			return nil, fmt.Errorf("start PostgreSQL: setting %s cannot be set", name)
		}
	}
	s := &Server{settings: map[string]string{}}
	for _, m := range []map[string]string{defaults, o.Settings} {
		for name, value := range m {
			s.settings[name] = value
		}
	}
	if err := s.create(ctx, o); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	return s, nil
}

func (s *Server) create(ctx context.Context, o Options) (err error) {
	if s.user, err = unprivileged(); err != nil {
		return err
	}
	version := clusterVersion(o.Dir)
	if version != "" && o.Version != "" && version != o.Version {
		return fmt.Errorf("the cluster in %s is of PostgreSQL %s, not %s", o.Dir, version, o.Version)
	}
	if s.bin, err = findBinaries(ctx, cmp.Or(version, o.Version), s.user); err != nil {
		if !errors.Is(err, errNoBinaries) || o.Dir != "" || o.Version != "" {
			return err
		}
		if none := s.startContainer(ctx); none != nil {
			return fmt.Errorf("%w; and no container instead: %w", err, none)
		}
		return nil
	}
	if err := s.claim(o.Dir); err != nil {
		return err
	}
	s.logPath = cmp.Or(o.LogTo, filepath.Join(s.dir, "server.log"))
	if s.watchdog, err = watch(serverScript, s.pidFile(), s.temporaryDir()); err != nil {
		return err
	}
	if clusterVersion(s.dir) != "" {
		if err := s.leftover(ctx); err != nil {
			return err
		}
		return s.open(ctx)
	}
	template, err := makeCluster(ctx, s.bin, s.user, s.dir, o.Fresh)
	if err != nil {
		return err
	}
	if err := s.open(ctx); err == nil || template == "" || ctx.Err() != nil {
		return err
	}
	// A template can be damaged in ways that a look at it does not show: if the same
	// start works without it, it was.
	if err := os.RemoveAll(s.data()); err != nil {
		return err
	}
	if _, err := makeCluster(ctx, s.bin, s.user, s.dir, true); err != nil {
		return err
	}
	if err := s.open(ctx); err != nil {
		return err
	}
	return discardTemplate(ctx, template)
}

// claim takes the folder for this process alone.
func (s *Server) claim(dir string) (err error) {
	if s.temporary = dir == ""; s.temporary {
		base, err := tempBase(s.user)
		if err != nil {
			return err
		}
		sweep(base, s.user)
		if s.dir, err = os.MkdirTemp(base, serverPrefix); err != nil {
			return err
		}
		if err := s.user.own(s.dir); err != nil {
			return err
		}
	} else {
		if s.dir, err = filepath.Abs(dir); err != nil {
			return err
		}
		if _, err := os.Stat(s.dir); errors.Is(err, os.ErrNotExist) {
			if err := os.MkdirAll(filepath.Dir(s.dir), 0o755); err != nil {
				return err
			}
			if err := os.Mkdir(s.dir, 0o700); err != nil {
				return err
			}
			if err := s.user.own(s.dir); err != nil {
				return err
			}
		}
	}
	if s.dir, err = filepath.EvalSymlinks(s.dir); err != nil {
		return err
	}
	s.lock, err = lockNow(filepath.Join(s.dir, lockName))
	if errors.Is(err, errLocked) {
		return fmt.Errorf("%s is in use by another process", s.dir)
	}
	return err
}

// open starts the server on a free port, or again on the one that it had.
func (s *Server) open(ctx context.Context) error {
	password, err := os.ReadFile(filepath.Join(s.dir, passwordName))
	if err != nil {
		return fmt.Errorf("the cluster in %s was not made by this package: %w", s.dir, err)
	}
	s.password = strings.TrimSpace(string(password))
	return s.run(ctx)
}

// URL returns the URL of a database of this server for its superuser, with the
// password in it. It stays the same over restarts. The database need not exist;
// "postgres" always does.
func (s *Server) URL(database string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.url(database)
}

func (s *Server) url(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, s.password),
		Host:     "127.0.0.1:" + strconv.Itoa(s.port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// PID returns the process id of the postmaster, or 0 while it is stopped or when
// it runs in a container.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid
}

// Dir returns the folder of the server: its cluster is in data, its log (unless
// set otherwise) in server.log.
func (s *Server) Dir() string { return s.dir }

// LogTail returns the last lines of the server's log, at most 4 KiB.
func (s *Server) LogTail() string {
	if s.container != nil {
		return s.container.logTail()
	}
	return tail(s.logPath, 0)
}

// Close ends the server (clients are cut off, as by Stop) and removes a temporary
// folder. A second Close does nothing.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := s.Stop(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.container != nil {
		err = errors.Join(err, s.container.remove())
	}
	if s.watchdog != nil {
		s.watchdog.dismiss()
	}
	if dir := s.temporaryDir(); dir != "" {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

func (s *Server) data() string    { return filepath.Join(s.dir, dataName) }
func (s *Server) pidFile() string { return filepath.Join(s.data(), pidFileName) }

func (s *Server) temporaryDir() string {
	if s.temporary {
		return s.dir
	}
	return ""
}

// tail returns the end of a file, from an offset on, at most 4 KiB of it.
func tail(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		from = max(from, info.Size()-4096)
	}
	text, _ := io.ReadAll(io.NewSectionReader(f, from, 4096))
	return strings.TrimSpace(string(text))
}

func newPassword() string { return rand.Text() }
