//go:build !linux && !darwin

package pgserver

import (
	"context"
	"errors"
)

var errUnsupported = errors.New("starting a PostgreSQL server is supported on Linux and macOS only; give the URL of one that runs")

// Server is a PostgreSQL server; on this system there is none.
type Server struct{}

// Start fails: this system is not supported.
func Start(context.Context, Options) (*Server, error) { return nil, errUnsupported }

// URL returns nothing on this system.
func (s *Server) URL(string) string { return "" }

// PID returns 0 on this system.
func (s *Server) PID() int { return 0 }

// Dir returns nothing on this system.
func (s *Server) Dir() string { return "" }

// LogTail returns nothing on this system.
func (s *Server) LogTail() string { return "" }

// Stop fails on this system.
func (s *Server) Stop(context.Context) error { return errUnsupported }

// Immediate fails on this system.
func (s *Server) Immediate(context.Context) error { return errUnsupported }

// Kill fails on this system.
func (s *Server) Kill() error { return errUnsupported }

// Restart fails on this system.
func (s *Server) Restart(context.Context) error { return errUnsupported }

// Close fails on this system.
func (s *Server) Close() error { return errUnsupported }

// Standby fails on this system.
func (s *Server) Standby(context.Context, map[string]string) (*Server, error) {
	return nil, errUnsupported
}
