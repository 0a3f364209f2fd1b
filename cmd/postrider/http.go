package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/postrider/postrider/config"
)

// monitor serves health and metrics, and nothing that changes anything or
// shows a message.
type monitor struct {
	server   *http.Server
	listener net.Listener
	logger   *slog.Logger
	ended    chan struct{}
}

// listen takes the address. A default address that is taken costs the
// monitoring and a warning; one that somebody chose is an error. nil: no
// monitor.
func listen(c *config.Config, logger *slog.Logger) (net.Listener, error) {
	if c.HTTP == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", c.HTTP)
	switch {
	case err == nil:
	case c.HTTPSet:
		return nil, usage(fmt.Errorf("http: cannot listen on %s: %w", c.HTTP, err), "choose another address with --http, or --http off")
	default:
		logger.Warn("no health and metrics: the default address is taken", "http", c.HTTP, "error", err, "mend", "--http ADDRESS or --http off")
		return nil, nil
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		logger.Warn("health and metrics can be read from other machines, without a password", "http", l.Addr().String())
	}
	return l, nil
}

// serve starts the monitor on l, which may be nil; stop it with close.
func serve(l net.Listener, metrics prometheus.Gatherer, ready *readiness, logger *slog.Logger) *monitor {
	if l == nil {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		reasons, notes := ready.ask()
		if len(reasons) > 0 {
			answer(w, http.StatusServiceUnavailable, "not ready", append(reasons, notes...)...)
			return
		}
		answer(w, http.StatusOK, "ready", notes...)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn), MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	}))
	m := &monitor{
		listener: l, logger: logger, ended: make(chan struct{}),
		server: &http.Server{
			Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
			WriteTimeout: 20 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
			ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		},
	}
	go func() {
		defer close(m.ended)
		if err := m.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("health and metrics ended", "error", err)
		}
	}()
	return m
}

// answer is of lines, each of one thing.
func answer(w http.ResponseWriter, status int, text string, lines ...string) {
	for _, l := range lines {
		text += "\n" + safe(strings.Join(strings.Fields(l), " "))
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client is gone; nothing to do about it
}

// close lets running requests finish for a moment. A nil monitor is fine.
func (m *monitor) close(ctx context.Context) {
	if m == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := m.server.Shutdown(ctx); err != nil {
		_ = m.server.Close() // it only says that clients did not leave in time
	}
	<-m.ended
}
