package mailcatcher

import (
	"net"

	"github.com/emersion/go-smtp"
)

// Stage is a point of the conversation.
type Stage string

const (
	AtSender    Stage = "MAIL" // the client has named the sender
	AtRecipient Stage = "RCPT" // and a recipient
	AtData      Stage = "DATA" // and sent the mail, which is not kept yet
	// AtAnswer: the mail is kept, and the client does not know yet.
	AtAnswer Stage = "ANSWER"
)

// Refusal is an SMTP error: a code, such as 451 or 550, and what to say.
type Refusal struct {
	Code    int
	Message string
}

// Hook is called at each stage with what is known of the mail. The stage waits
// for it. nil goes on; a Refusal is the client's answer.
type Hook func(stage Stage, m Mail) *Refusal

// SetHook puts a hook in place of the one there was; nil: none.
func (c *Catcher) SetHook(h Hook) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = h
}

func (c *Catcher) at(stage Stage, m Mail) error {
	c.mu.Lock()
	hook := c.hook
	c.mu.Unlock()
	if hook == nil {
		return nil
	}
	if r := hook(stage, m); r != nil {
		return &smtp.SMTPError{Code: r.Code, EnhancedCode: smtp.EnhancedCodeNotSet, Message: r.Message}
	}
	return nil
}

// Down resets all connections, and every new one as soon as it is accepted,
// until Up.
func (c *Catcher) Down() {
	c.down.Store(true)
	c.cutAll()
}

// Up serves again after Down.
func (c *Catcher) Up() { c.down.Store(false) }

// Connects is how many connections were accepted, those that were reset at once
// included.
func (c *Catcher) Connects() int { return int(c.connects.Load()) }

func (c *Catcher) cutAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		reset(conn)
	}
}

func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// gate turns connections away while the catcher is down, and knows the open
// ones.
type gate struct {
	net.Listener
	catcher *Catcher
}

func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := g.catcher
		c.connects.Add(1)
		c.mu.Lock()
		c.conns[conn] = struct{}{}
		c.mu.Unlock()
		known := &knownConn{Conn: conn, catcher: c}
		if !c.down.Load() {
			return known, nil
		}
		reset(conn)
		_ = known.Close()
	}
}

// knownConn is forgotten when it is closed.
type knownConn struct {
	net.Conn
	catcher *Catcher
}

func (k *knownConn) Close() error {
	k.catcher.mu.Lock()
	delete(k.catcher.conns, k.Conn)
	k.catcher.mu.Unlock()
	return k.Conn.Close()
}
