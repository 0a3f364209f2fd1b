package awsproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// Server serves a Proxy on a free port of the loopback interface.
type Server struct {
	*Proxy
	// URL is the base URL, such as "http://127.0.0.1:40124".
	URL string

	address  string
	http     *http.Server
	connects atomic.Int64
	down     atomic.Bool
	stopping context.CancelFunc

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
	serving  sync.WaitGroup
}

// Start starts a server in front of the endpoint. Close it when done.
func Start(upstream string, seed int64) (*Server, error) {
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{Proxy: New(upstream, seed), conns: map[net.Conn]struct{}{}, stopping: stop}
	s.http = &http.Server{
		Handler:     s.Proxy,
		ConnState:   s.track,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	if err := s.listen("127.0.0.1:0"); err != nil {
		stop()
		return nil, err
	}
	s.URL = "http://" + s.address
	return s, nil
}

func (s *Server) listen(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("awsproxy: listen: %w", err)
	}
	s.mu.Lock()
	s.listener, s.address = l, l.Addr().String()
	s.mu.Unlock()
	s.serving.Go(func() {
		err := s.http.Serve(&gate{Listener: l, server: s})
		if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			panic(fmt.Sprintf("awsproxy: serve: %v", err))
		}
	})
	return nil
}

// Connects is how many connections were accepted, those that were reset at
// once included.
func (s *Server) Connects() int { return int(s.connects.Load()) }

// Down resets all connections, and every new one as soon as it is accepted, so
// that attempts to connect are counted; Up ends that.
func (s *Server) Down() {
	s.down.Store(true)
	s.cutAll()
}

// Up serves again after Down.
func (s *Server) Up() { s.down.Store(false) }

// Refuse closes the port, so that connections are refused, and cuts the open
// ones; Listen opens the same port again.
func (s *Server) Refuse() {
	s.mu.Lock()
	_ = s.listener.Close()
	s.mu.Unlock()
	s.serving.Wait()
	s.cutAll()
}

// Listen opens the port again after Refuse. It fails if another program has
// taken the port meanwhile.
func (s *Server) Listen() error { return s.listen(s.address) }

func (s *Server) cutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		resetConn(conn)
	}
}

func (s *Server) track(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns[conn] = struct{}{}
		if s.down.Load() { // it was accepted just before
			resetConn(conn)
		}
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, conn)
	}
}

// Close stops the server, cutting whatever is still open.
func (s *Server) Close() {
	s.stopping()
	_ = s.http.Close()
	s.serving.Wait()
	if t, ok := s.transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// gate counts connections and turns them away while the server is down.
type gate struct {
	net.Listener
	server *Server
}

func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		g.server.connects.Add(1)
		if !g.server.down.Load() {
			return conn, nil
		}
		resetConn(conn)
	}
}
