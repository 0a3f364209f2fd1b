package awsrig

import (
	"testing"

	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/outbox"
)

// Publishing is a broker whose publisher is tested.
type Publishing struct {
	// Operation is the request that publishes, such as SendMessageBatch.
	Operation string
	// New makes a destination, a FIFO one if fifo is set, a publisher that sends
	// there through the proxy, and a queue that gets what it sends.
	New func(r *Rig, fifo bool) (p outbox.Publisher, queue string)
}

// Faults runs the tests of what every publisher has to bear.
func Faults(t *testing.T, p Publishing) {
	t.Run("failed entries alone are sent again", p.failedEntries)
	t.Run("failed entries at random", p.failedAtRandom)
	t.Run("an entry without an answer is unsent", p.noAnswer)
	t.Run("a message too large for the destination fails alone", p.tooLarge)
	t.Run("while the service is away", p.away)
	t.Run("a lost answer", p.lostAnswer)
	t.Run("on FIFO followers stay behind a failure", p.followers)
}

// Three of ten entries fail: they alone count as unsent, and sending them again
// repeats none of the other seven.
func (p Publishing) failedEntries(t *testing.T) {
	r := New(t)
	publisher, queue := p.New(r, false)
	r.Proxy.Add(awsproxy.Rule{Target: p.Operation, Count: 1, Fault: awsproxy.FailEntries(awsproxy.At(1, 4, 9), "InternalError", false)})
	msgs := Orders(t, 10)
	failed := Pick(t, msgs, publisher.Publish(t.Context(), msgs), outbox.ClassRetryable)
	if len(failed) != 3 || failed[0].ID != msgs[1].ID || failed[1].ID != msgs[4].ID || failed[2].ID != msgs[9].ID {
		t.Fatalf("%d messages failed, want numbers 1, 4 and 9", len(failed))
	}
	r.All(publisher, failed)
	r.Once(queue, msgs...)
	if n := r.Proxy.Requests(p.Operation); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// Chance decides which entries fail, until all are sent.
func (p Publishing) failedAtRandom(t *testing.T) {
	r := New(t)
	publisher, queue := p.New(r, false)
	for i := range 10 {
		r.Proxy.Add(awsproxy.Rule{Target: p.Operation, Probability: 0.15, Fault: awsproxy.FailEntries(awsproxy.At(i), "InternalError", false)})
	}
	msgs := Orders(t, 137)
	rounds := 0
	for unsent := msgs; len(unsent) > 0; rounds++ {
		var left []outbox.Message
		for i, result := range publisher.Publish(t.Context(), unsent) {
			if result.Err != nil {
				left = append(left, unsent[i])
			}
		}
		unsent = left
	}
	if rounds < 2 {
		t.Error("nothing ever failed")
	}
	r.Once(queue, msgs...)
}

// An entry about which the service says nothing is not known to be sent.
func (p Publishing) noAnswer(t *testing.T) {
	r := New(t)
	publisher, _ := p.New(r, false)
	r.Proxy.Add(awsproxy.Rule{Target: p.Operation, Fault: awsproxy.OmitEntries(awsproxy.At(7))})
	msgs := Orders(t, 10)
	failed := Pick(t, msgs, publisher.Publish(t.Context(), msgs), outbox.ClassRetryable)
	if len(failed) != 1 || failed[0].ID != msgs[7].ID {
		t.Fatalf("%d messages count as unsent, want number 7", len(failed))
	}
}

// The service refuses the whole request for one message that is too large for a
// limit that only this destination has.
func (p Publishing) tooLarge(t *testing.T) {
	r := New(t)
	publisher, queue := p.New(r, false)
	r.Proxy.Add(awsproxy.Rule{Target: p.Operation, Containing: "too large", Fault: awsproxy.ServiceError(400,
		"BatchRequestTooLong", "AWS.SimpleQueueService.BatchRequestTooLong;Sender", "The length of all the messages put together is more than the limit.")})
	msgs := Orders(t, 50)
	msgs[23].Payload = []byte(`"too large"`)
	failed := Pick(t, msgs, publisher.Publish(t.Context(), msgs), outbox.ClassPermanent)
	if len(failed) != 1 || failed[0].ID != msgs[23].ID {
		t.Fatalf("%d messages failed, want number 23", len(failed))
	}
	r.Once(queue, append(msgs[:23:23], msgs[24:]...)...)
}

// What befalls everybody is unavailable, and over when it is over; also before
// the publisher has found its destination.
func (p Publishing) away(t *testing.T) {
	for _, found := range []bool{false, true} {
		r := New(t)
		publisher, queue := p.New(r, false)
		if found {
			r.All(publisher, Orders(t, 1))
			r.Waiting(queue)
		}
		msgs := Orders(t, 12)
		refused := func(when string, alarm bool) {
			t.Helper()
			for i, result := range publisher.Publish(t.Context(), msgs) {
				if result.Err == nil || outbox.ClassOf(result.Err) != outbox.ClassUnavailable || outbox.IsAlarm(result.Err) != alarm {
					t.Errorf("%s: message %d has %v, want unavailable, alarm %v", when, i, result.Err, alarm)
				}
			}
		}
		for name, c := range map[string]struct {
			fault awsproxy.Fault
			alarm bool
		}{
			"throttled":           {awsproxy.Throttle(), false},
			"503":                 {awsproxy.Unavailable(), false},
			"502 of a balancer":   {awsproxy.Status(502), false},
			"reset":               {awsproxy.ResetConnection(), false},
			"expired credentials": {awsproxy.ExpiredCredentials(), true},
			"access denied":       {awsproxy.AccessDenied(), true},
		} {
			end := r.Proxy.Add(awsproxy.Rule{Fault: c.fault})
			refused(name, c.alarm)
			end()
		}
		r.Proxy.Refuse()
		refused("refused connections", false)
		if err := r.Proxy.Listen(); err != nil {
			t.Fatal(err)
		}
		r.All(publisher, msgs)
		r.Once(queue, msgs...)
	}
}

// The answer is lost: the messages are not known to be sent. FIFO removes the
// second copies by their ids.
func (p Publishing) lostAnswer(t *testing.T) {
	r := New(t)
	publisher, queue := p.New(r, true)
	r.Proxy.Add(awsproxy.Rule{Target: p.Operation, Count: 1, Fault: awsproxy.LoseAnswer()})
	msgs := Orders(t, 10)
	if failed := Pick(t, msgs, publisher.Publish(t.Context(), msgs), outbox.ClassUnavailable); len(failed) != 10 {
		t.Fatalf("%d messages count as unsent, want all", len(failed))
	}
	if n, err := r.Left(t.Context(), queue); err != nil || n != 10 {
		t.Fatalf("%d messages are in the queue (%v); the answer alone should have been lost", n, err)
	}
	r.All(publisher, msgs)
	r.Once(queue, msgs...)
}

// On FIFO the second message of a key is not sent while the first is to be tried
// again.
func (p Publishing) followers(t *testing.T) {
	r := New(t)
	publisher, queue := p.New(r, true)
	msgs := Orders(t, 6)
	for i := range msgs {
		msgs[i].Key = []string{"a", "b"}[i%2]
	}
	r.Proxy.Add(awsproxy.Rule{Target: p.Operation, Count: 1, Fault: awsproxy.FailEntries(awsproxy.Containing(msgs[0].ID.String()), "InternalError", false)})
	failed := Pick(t, msgs, publisher.Publish(t.Context(), msgs), outbox.ClassRetryable)
	if len(failed) != 3 || failed[0].Key != "a" || failed[1].Key != "a" || failed[2].Key != "a" {
		t.Fatalf("%d messages count as unsent, want all three of key a", len(failed))
	}
	r.Once(queue, msgs[1], msgs[3], msgs[5])
}
