package cli_test

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// Messages that were sent go when their time is over, and the metrics tell.
func TestSentMessagesAreDeleted(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		s := newShop(t, db)
		relay, monitor := s.relay("--retention-sent", "0s", "--retention-failed", "720h", "--limits-in-flight-messages", "5000", "--lease", "15s")
		s.enqueue(20)
		s.receive(20)
		await(t, monitor+"/metrics", 200, `postrider_cleaned_messages_total{from="log"} 20`)
		if l := s.list("--state", "sent"); len(l.Messages) != 0 {
			t.Errorf("sent messages are listed: %+v", l)
		}
		_, text := get(t, monitor+"/metrics")
		for _, want := range []string{
			`postrider_in_flight_limit_messages\{route="default"\} 5000`, `postrider_in_flight_limit_bytes\{route="default"\} 6\.7`, `postrider_parked_pending_limit_messages\{route="default"\} 100000`,
			`postrider_clean_failures_total 0`, `postrider_stored_bytes [1-9]`, `postrider_oldest_stored_age_seconds [0-9]`, `postrider_rate_wait_seconds_total\{route="default"\} 0`,
		} {
			if !regexp.MustCompile(`(?m)^` + want).MatchString(text) {
				t.Errorf("no metric is %s in\n%s", want, text)
			}
		}
		if !strings.HasPrefix(db, "sqlite") && !regexp.MustCompile(`(?m)^postrider_connections_limit 8$`).MatchString(text) {
			t.Errorf("no limit of connections in\n%s", text)
		}
		relay.signal(syscall.SIGTERM)
		relay.wantExit(0)

		relay, _ = s.relay("--retention-sent", "0s", "--lease", "15s") // an empty log is nothing odd
		s.enqueue(3)
		s.receive(3)
		relay.signal(syscall.SIGTERM)
		relay.wantExit(0)
		s.run("status", "--check")
	})
}

// What is to be kept is kept, and listed.
func TestSentMessagesAreKept(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		s := newShop(t, db)
		for _, kept := range []string{"keep", "1h"} {
			relay, _ := s.relay("--retention-sent", kept, "--lease", "15s")
			s.enqueue(1)
			s.receive(1)
			relay.signal(syscall.SIGTERM)
			relay.wantExit(0)
		}
		if l := s.awaitListed(2, "--state", "sent"); len(l.Messages) != 2 {
			t.Errorf("listed: %+v", l)
		}
	})
}
