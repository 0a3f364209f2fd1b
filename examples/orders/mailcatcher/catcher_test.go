package mailcatcher

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-smtp"
)

func send(t testing.TB, c *Catcher, n int) {
	t.Helper()
	text := fmt.Sprintf("Message-ID: <%d@x.example>\r\nFrom: a@x.example\r\nTo: B <b@x.example>\r\nSubject: =?utf-8?q?=C3=A9?= %d\r\n\r\n.text\r\n", n, n)
	client, err := smtp.Dial(c.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.SendMail("a@x.example", []string{"b@x.example"}, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

func TestKeepsTheNewest(t *testing.T) {
	c, err := Start(Options{Keep: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	changed := c.Changed()
	for n := range 5 {
		send(t, c, n)
	}
	<-changed
	mails := c.Mails()
	if c.Count() != 5 || len(mails) != 3 || c.Connects() != 5 {
		t.Fatalf("%d mails of %d, %d connections", len(mails), c.Count(), c.Connects())
	}
	for i, m := range mails {
		if m.MessageID != fmt.Sprintf("%d@x.example", i+2) || m.Subject != fmt.Sprintf("é %d", i+2) || m.Text != ".text\r\n" || m.Names[0].Name != "B" {
			t.Errorf("mail %d: %+v", i, m)
		}
	}
}

func TestDownAndClose(t *testing.T) {
	c, err := Start(Options{})
	if err != nil {
		t.Fatal(err)
	}
	open, err := smtp.Dial(c.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := open.Hello("x"); err != nil {
		t.Fatal(err)
	}
	c.Down()
	if err := open.Noop(); err == nil {
		t.Error("an open connection works")
	}
	if client, err := smtp.Dial(c.Addr); err == nil {
		if err := client.Hello("x"); err == nil {
			t.Error("a new connection works")
		}
		_ = client.Close()
	}
	c.Up()
	var wait sync.WaitGroup
	for n := range 10 {
		wait.Go(func() { send(t, c, n) })
	}
	wait.Wait()
	c.Close()
	if _, err := smtp.Dial(c.Addr); err == nil {
		t.Error("it listens after the end")
	}
	if c.Count() != 10 {
		t.Errorf("%d mails", c.Count())
	}
}
