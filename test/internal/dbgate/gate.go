// Package dbgate is a way to a database server on which tests count who takes
// it, and that leads elsewhere or nowhere when a test wants it.
package dbgate

import (
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// Gate listens on loopback and leads to one server. The test's end closes it.
type Gate struct {
	// URL is the database's, with the gate as its server.
	URL string

	connects atomic.Int64

	mu     sync.Mutex
	target string
	open   map[*passage]struct{}
}

// passage is one connection with its continuation.
type passage struct {
	ends [2]net.Conn
	dead atomic.Bool // what arrives is thrown away
}

// New opens a gate to the server in a database's URL.
func New(t testing.TB, database string) *Gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &Gate{URL: At(t, database, l.Addr().String()), open: map[*passage]struct{}{}}
	g.LeadTo(t, database)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			g.connects.Add(1)
			serving.Go(func() { g.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		g.Cut()
		serving.Wait()
	})
	return g
}

// At is the URL of a database with another server in it.
func At(t testing.TB, database, server string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = server
	return u.String()
}

// LeadTo leads connections that are made from now on to the server in the URL.
func (g *Gate) LeadTo(t testing.TB, database string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.target = u.Host
}

// Connects is how many connections were made so far.
func (g *Gate) Connects() int64 { return g.connects.Load() }

// Cut closes all connections that are open.
func (g *Gate) Cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.open {
		p.close()
	}
}

// Deaden lets the connections that are open carry nothing more, for ever and
// without a word, as after a failover of an address; new ones are well.
func (g *Gate) Deaden() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.open {
		p.dead.Store(true)
	}
}

func (g *Gate) serve(conn net.Conn) {
	defer conn.Close()
	g.mu.Lock()
	target := g.target
	g.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	p := &passage{ends: [2]net.Conn{conn, server}}
	defer p.close()
	g.mu.Lock()
	g.open[p] = struct{}{}
	g.mu.Unlock()
	var directions sync.WaitGroup
	for i := range p.ends {
		directions.Go(func() {
			_, _ = io.Copy(writer{p, p.ends[i]}, p.ends[1-i]) // however it ends, both ends are told
			p.close()
		})
	}
	directions.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, p)
}

func (p *passage) close() {
	for _, end := range p.ends {
		_ = end.Close()
	}
}

// writer throws away what a dead passage is to carry.
type writer struct {
	p  *passage
	to net.Conn
}

func (w writer) Write(b []byte) (int, error) {
	if w.p.dead.Load() {
		return len(b), nil
	}
	return w.to.Write(b)
}
