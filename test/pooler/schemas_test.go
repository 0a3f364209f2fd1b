package pooler

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/outbox"
)

// Two relays, each a process with a schema of its own in one database, behind one
// pooler and before one queue: neither sends, pauses or waits for what is the
// other one's. Names are used as they are written, up to PostgreSQL's 63 bytes.
func TestTwoProcessesOnTwoSchemas(t *testing.T) {
	t.Parallel()
	url, owner := database(t)
	b := newBouncer(t, url, "default_pool_size=3")
	one := newPost(t, b.url(), owner, "ü; DROP $a$ '\\")
	two := newPost(t, b.url(), owner, strings.Repeat("ä", 31)+"x")
	one.lease = "3s" // of one that dies
	first, second := one.relay(), two.relay()
	one.put(outbox.Message{Topic: "nowhere", Payload: []byte("{}")})
	one.enqueue(100)
	two.enqueue(50)
	one.arrive()
	two.arrive()
	one.run("pause", "default", "--note", "odd")
	two.enqueue(50)
	two.arrive()
	first.Kill()
	two.enqueue(10)
	two.arrive()
	second.Stop()
	one.run("resume", "default")
	first = one.relay()
	one.enqueue(50)
	one.arrive()
	one.settled(outbox.StateFailed, 1)
	two.settled(outbox.StateFailed, 0)
	first.Stop()
	for _, p := range []*post{one, two} {
		for body := range p.got {
			if !strings.Contains(body, `"n":`) {
				t.Errorf("schema %s sent %s", p.schema, body)
			}
		}
	}
}
