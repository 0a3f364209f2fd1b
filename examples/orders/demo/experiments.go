package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/examples/orders/awsproxy"
	"github.com/postrider/postrider/examples/orders/page"
)

const (
	// experimentPatience is how long an experiment waits while nothing moves.
	experimentPatience = 30 * time.Second
	// pace is the time between two orders that experiments place.
	pace = 100 * time.Millisecond
	// burst is how many orders are on their way when the relay is killed.
	burst = 60
	// brokerAway is how long the broker stays away, mailAway the mail server.
	brokerAway = 5 * time.Second
	mailAway   = 5 * time.Second
)

func (s *shop) experiments() []page.Experiment {
	list := []page.Experiment{{
		Name: "kill-relay", Title: "Kill the relay", Button: "Kill its process",
		Expect: "The relay’s process gets kill -9 while it sends. Orders still commit and wait in the log. " +
			"After three seconds another process goes on where the records end: what was sent and not yet recorded is sent again, and has no effect.",
		Run: s.killRelay,
	}, {
		Name: "broker-away", Title: "Take the broker away", Button: "Cut it off",
		Expect: "For five seconds nobody reaches " + s.broker() + ". Customers do not notice: orders commit. " +
			"The relay spends no attempt, asks now and then whether the broker is back, and sends what has waited.",
		Run: s.takeBrokerAway,
	}, {
		Name: "fail-notification", Title: "Fail the notification service", Button: "Stop its mail server",
		Expect: "For five seconds the mail server hangs up on everybody. The other services do not notice. " +
			"Notification keeps its messages and waits: no try of theirs is spent, no mail is lost, and none is sent twice.",
		Run: s.failNotification,
	}, {
		Name: "deliver-twice", Title: "Deliver a message twice", Button: "Lose an answer",
		Expect: "The broker takes a message, and its answer is lost on the way back. The relay cannot know, and sends it again. " +
			"Every service gets it twice, and acts once.",
		Run: s.deliverTwice,
	}, {
		Name: "poison", Title: "Poison a message", Button: "Send one",
		Expect: "Somebody sends half a message that no service can read. Each tries it five times; then its queue moves it to the dead-letter queue. " +
			"Orders go past it.",
		Run: s.poisonMessage,
	}}
	if s.mail == nil {
		list = slices.DeleteFunc(list, func(e page.Experiment) bool { return e.Name == "fail-notification" })
	}
	for i := range list {
		list[i].Run = s.quietly(list[i].Run)
	}
	return list
}

// quietly keeps what an experiment causes out of the services' log: it is
// expected, and the page tells it.
func (s *shop) quietly(run func(context.Context, func(string)) (string, error)) func(context.Context, func(string)) (string, error) {
	return func(ctx context.Context, say func(string)) (string, error) {
		s.hushed.Store(true)
		defer s.hushed.Store(false)
		return run(ctx, say)
	}
}

// everybody names the services.
func (s *shop) everybody() string {
	if s.Plain {
		return s.reactions[0].name
	}
	return "all four services"
}

// broker names what experiments take away.
func (s *shop) broker() string {
	if s.Plain {
		return "SQS"
	}
	return "SNS and SQS"
}

// awaitSoon is await for what an experiment expects; what names it.
func (s *shop) awaitSoon(ctx context.Context, what string, condition func() bool) error {
	soon, cancel := context.WithTimeout(ctx, experimentPatience)
	defer cancel()
	err := s.await(soon, condition)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s did not happen within %s", what, experimentPatience)
	}
	return err
}

// copies is how many repeated deliveries there were so far.
func (s *shop) copies() int {
	n := 0
	for _, service := range s.journal.Counts().Services {
		n += service.Repeats
	}
	return n
}

// verify waits until every service has every order, and is an error if some
// are missing, or there are too many.
func (s *shop) verify(ctx context.Context) error {
	r, err := s.settle(ctx, experimentPatience)
	if err != nil {
		return err
	}
	if err := r.err(); err != nil {
		s.Logger.ErrorContext(ctx, "an experiment ended with a finding", "error", err)
		return errors.New("databases differ: " + err.Error())
	}
	return nil
}

// placeFor places orders at the pace until the time is over or stop is closed.
func (s *shop) placeFor(ctx context.Context, d time.Duration) (n int, err error) {
	for end := time.Now().Add(d); time.Now().Before(end); n++ {
		if _, err := place(ctx, s.url(), 1, func(int) request { return numbered(n + 1) }); err != nil {
			return n, err
		}
		if !sleep(ctx, pace) {
			return n, ctx.Err()
		}
	}
	return n, nil
}

func (s *shop) killRelay(ctx context.Context, say func(string)) (string, error) {
	copies, sent := s.copies(), s.journal.Counts().Sent
	if _, err := place(ctx, s.url(), burst, numbered); err != nil {
		return "", err
	}
	// In the middle of its work, if it is not faster than this.
	if err := s.awaitSoon(ctx, "the first publish", func() bool { return s.journal.Counts().Sent > sent }); err != nil {
		return "", err
	}
	killed := s.relay.Kill()
	at := time.Now()
	if killed == 0 {
		return "", errors.New("no relay was running just now")
	}
	say(fmt.Sprintf("Process %d is killed. Orders go on: see them wait in the log.", killed))
	n, err := s.placeFor(ctx, 2500*time.Millisecond)
	if err != nil {
		return "", err
	}
	another := func() bool { now := s.relay.State(); return now.Ready && now.PID != killed }
	if err := s.awaitSoon(ctx, "the start of another relay", another); err != nil {
		return "", err
	}
	next, away := s.relay.State().PID, time.Since(at)
	say(fmt.Sprintf("Process %d goes on.", next))
	if err := s.verify(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("Process %d was killed; process %d went on after %.1f s. All %d orders placed meanwhile are in %s. %s",
		killed, next, away.Seconds(), burst+n, s.everybody(), came(s.copies()-copies)), nil
}

// came says how many copies there were.
func came(copies int) string {
	switch copies {
	case 0:
		return "No copy came."
	case 1:
		return "One copy came, and had no effect."
	}
	return fmt.Sprintf("%d copies came, and had no effect.", copies)
}

func (s *shop) takeBrokerAway(ctx context.Context, say func(string)) (string, error) {
	before := s.relay.State()
	s.setAway(true)
	defer s.setAway(false)
	say("The broker is cut off. Orders go on: see them wait in the log.")
	n, err := s.placeFor(ctx, brokerAway)
	if err != nil {
		return "", err
	}
	waited := s.journal.Counts().Waiting
	s.setAway(false)
	back := time.Now()
	say("The broker is back.")
	if err := s.verify(ctx); err != nil {
		return "", err
	}
	after := s.relay.State()
	return fmt.Sprintf("The broker was away for %.1f s. %d orders were taken meanwhile, and %d waited; %.1f s after its return they were in %s. "+
		"The relay found it away %d times, and spent %d attempts.",
		brokerAway.Seconds(), n, waited, time.Since(back).Seconds(), s.everybody(), after.Unavailable-before.Unavailable, after.Retried-before.Retried), nil
}

// setAway cuts the broker off, or lets it come back.
func (s *shop) setAway(away bool) {
	if s.away.Swap(away) == away {
		return
	}
	if away {
		s.peers.broker.Down()
	} else {
		s.peers.broker.Up()
	}
	s.journal.Touch()
}

func (s *shop) failNotification(ctx context.Context, say func(string)) (string, error) {
	at := slices.IndexFunc(s.reactions, func(r *reaction) bool { return r.name == "notification" })
	refused := s.journal.Counts().Services[at].Refusals
	s.mail.catcher.Down()
	defer s.mail.catcher.Up()
	begin := time.Now()
	say("The mail server hangs up on everybody. Orders go on.")
	n, err := s.placeFor(ctx, mailAway/2)
	if err != nil {
		return "", err
	}
	others := func() bool {
		for _, o := range s.journal.Newest(n) {
			for i, v := range o.Visits {
				if i != at && v.Done.IsZero() {
					return false
				}
			}
		}
		return true
	}
	down, cancel := context.WithDeadline(ctx, begin.Add(mailAway))
	defer cancel()
	if s.await(down, others) == nil {
		say(fmt.Sprintf("All but notification are done with the %d orders.", n))
	}
	if !sleep(ctx, time.Until(begin.Add(mailAway))) {
		return "", ctx.Err()
	}
	s.mail.catcher.Up()
	back := time.Now()
	say("The mail server is back.")
	if err := s.verify(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("The mail server was away for %.1f s. %d orders were taken meanwhile; %.1f s after its return each had its one mail. "+
		"Notification gave back %d messages.", mailAway.Seconds(), n, time.Since(back).Seconds(), s.journal.Counts().Services[at].Refusals-refused), nil
}

func (s *shop) deliverTwice(ctx context.Context, say func(string)) (string, error) {
	copies := s.copies()
	// Only the message of this customer is met.
	customer := fmt.Sprintf("twice-%d", time.Now().UnixMilli())
	lost := s.peers.broker.Add(awsproxy.Rule{Containing: customer, Count: 1, Fault: awsproxy.LoseAnswer()})
	defer lost()
	ids, err := place(ctx, s.url(), 1, func(int) request { return request{CustomerID: customer, AmountCents: 4999} })
	if err != nil {
		return "", err
	}
	say("The answer to the message of " + customer + " is lost.")
	twice := func() bool {
		o, _ := s.journal.Find(ids[0])
		for _, v := range o.Visits {
			if v.Repeats == 0 {
				return false
			}
		}
		return true
	}
	if err := s.awaitSoon(ctx, "the delivery of a copy to everybody", twice); err != nil {
		return "", err
	}
	if err := s.verify(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("The order of %s came twice to %s. %s", customer, s.everybody(), came(s.copies()-copies)), nil
}

func (s *shop) poisonMessage(ctx context.Context, say func(string)) (string, error) {
	before, err := s.deadLetters(ctx)
	if err != nil {
		return "", err
	}
	begin := time.Now()
	if err := s.poison(ctx); err != nil {
		return "", err
	}
	say("It is in. Each service tries it five times, a second apart; orders go past it.")
	n, err := s.placeFor(ctx, 2*time.Second)
	if err != nil {
		return "", err
	}
	if err := s.awaitDeadLetters(ctx, before); err != nil {
		return "", err
	}
	took := time.Since(begin)
	if err := s.verify(ctx); err != nil {
		return "", err
	}
	where, each := "the dead-letter queues of "+s.everybody(), " each"
	if s.Plain {
		where, each = "the dead-letter queue of "+s.everybody(), ""
	}
	return fmt.Sprintf("After five tries%s, %.1f s, the message is in %s. %d orders went past it meanwhile.", each, took.Seconds(), where, n), nil
}

// awaitDeadLetters waits until every dead-letter queue has more than before.
func (s *shop) awaitDeadLetters(ctx context.Context, before []int) error {
	soon, cancel := context.WithTimeout(ctx, experimentPatience)
	defer cancel()
	for {
		now, err := s.deadLetters(soon)
		if err != nil {
			return err
		}
		arrived := 0
		for i := range now {
			if now[i] > before[i] {
				arrived++
			}
		}
		if arrived == len(now) {
			return nil
		}
		if !sleep(soon, queryEvery) {
			return fmt.Errorf("the message is in %d of %d dead-letter queues", arrived, len(now))
		}
	}
}

// deadLetters are how many each service's dead-letter queue has.
func (s *shop) deadLetters(ctx context.Context) ([]int, error) {
	dead := make([]int, len(s.reactions))
	for i, r := range s.reactions {
		d, err := r.depth(ctx, s.peers.queues)
		if err != nil {
			return nil, err
		}
		dead[i] = d.dead
	}
	return dead, nil
}
