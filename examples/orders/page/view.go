package page

import (
	"math/big"
	"time"
)

// View is everything that the page shows at one moment.
type View struct {
	// Plain: there is no topic, the relay sends straight to the one queue.
	Plain bool
	// Database names the kind of database, such as SQLite.
	Database string
	// Orders is how many the database has.
	Orders int
	// Commits, Taken and Sent are how many messages have passed since the
	// start: into the log, from it to the relay, and from there to the broker,
	// repeats included.
	Commits, Taken, Sent int
	// Waiting is how many messages in the log the broker has not acknowledged.
	Waiting int
	Relay   Relay
	// Away: the broker does not answer.
	Away     bool
	Services []Service
	// Latest are the newest orders, newest first.
	Latest    []Order
	Mail      *Mail      // nil: nobody sends any
	Analytics *Analytics // nil: nobody counts
	// Complete is how many orders of this run have reached everybody.
	Complete int
}

// Relay is the relay's process.
type Relay struct {
	PID   int // 0: none runs
	Ready bool
	Away  bool // it waits for the broker
}

// Service is one of those that react to orders, with its queue.
type Service struct {
	Name  string // "fulfilment"
	Title string // "Fulfilment"
	// Queue is the queue's name, Store what the service writes to.
	Queue, Store string
	// Unit is what Total counts, such as "mails", and One a single one.
	Unit, One string
	// Total is how many orders the service has dealt with, by its own data.
	Total int
	// Queued is how many messages its queue got since the start.
	Queued int
	// Delivered is how many deliveries came to it since the start, Repeats how
	// many of them were copies, Refused how many it gave back.
	Delivered, Repeats, Refused int
	// Waiting and Dead are how many messages its queue and the dead-letter
	// queue have.
	Waiting, Dead int
	// Failing: it cannot do its work just now.
	Failing bool
}

// Order is one order with the times that its message took, since the commit; a
// negative one is not known (yet).
type Order struct {
	ID          string
	Customer    string
	AmountCents int64
	Taken, Sent time.Duration
	Services    []Passing // in the order of View.Services
}

// Passing is an order at one service: handed out by the queue, and done.
type Passing struct {
	Out, Done time.Duration
	Repeats   int
}

// Unknown is a time that is not known.
const Unknown = time.Duration(-1)

// Mail is what came out of notification.
type Mail struct {
	Total  int
	Latest []Letter // newest first
}

// Letter is one mail.
type Letter struct {
	To, Subject, Text string
	At                time.Time
}

// Analytics are the figures of analytics.
type Analytics struct {
	Orders       int
	RevenueCents *big.Int
	Minutes      []Minute   // oldest first, without gaps
	Customers    []Customer // those with the most revenue, first
}

// Minute is one minute's.
type Minute struct {
	At           time.Time
	Orders       int
	RevenueCents *big.Int
}

// Customer is one customer's.
type Customer struct {
	Name         string
	Orders       int
	RevenueCents *big.Int
}

// Hit is one order that a search found.
type Hit struct {
	ID          string
	Customer    string
	AmountCents int64
	CreatedAt   string
}

// Hop is one message on one part of its way, as the picture names the parts:
// commit, take, send, deliver-SERVICE.
type Hop struct {
	Message string `json:"m"`
	Hop     string `json:"h"`
}
