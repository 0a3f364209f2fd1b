//go:build linux || darwin

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

// Standby starts a hot standby that streams from s, with its settings over those
// of s. For the copy of the cluster s is stopped and started again. Promote it
// with SQL: SELECT pg_promote(). Close it by itself.
func (s *Server) Standby(ctx context.Context, settings map[string]string) (*Server, error) {
	if s.container != nil {
		return nil, errors.New("start a standby: not of a server in a container")
	}
	standby := &Server{settings: maps.Clone(s.settings), bin: s.bin, user: s.user}
	maps.Copy(standby.settings, settings)
	err := standby.follow(ctx, s)
	if err != nil {
		_ = standby.Close()
		return nil, fmt.Errorf("start a standby: %w", err)
	}
	return standby, nil
}

func (s *Server) follow(ctx context.Context, primary *Server) (err error) {
	if err := s.claim(""); err != nil {
		return err
	}
	s.logPath = filepath.Join(s.dir, "server.log")
	if s.watchdog, err = watch(serverScript, s.pidFile(), s.temporaryDir()); err != nil {
		return err
	}
	if err := primary.Stop(ctx); err != nil {
		return err
	}
	copied := copyCluster(ctx, primary.dir, s.dir)
	if err := errors.Join(copied, primary.Restart(ctx)); err != nil {
		return err
	}
	if err := s.point(primary); err != nil {
		return err
	}
	return s.open(ctx)
}

// point tells the cluster whose standby it is, in its own file of settings: the
// command line would show the password.
func (s *Server) point(primary *Server) error {
	settings, err := os.OpenFile(filepath.Join(s.data(), "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(settings, "primary_conninfo = 'host=127.0.0.1 port=%d user=%s password=%s'\n", primary.port, superuser, primary.password)
	if err := errors.Join(err, settings.Close()); err != nil {
		return err
	}
	signal := filepath.Join(s.data(), "standby.signal")
	return errors.Join(os.WriteFile(signal, nil, 0o600), s.user.own(signal))
}
