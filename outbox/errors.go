package outbox

import (
	"context"
	"errors"
)

// Class says what a publish error means for the message.
type Class int

const (
	// ClassRetryable: refused this time. Spends an attempt; retried with
	// exponential backoff. The class of an error that has no other.
	ClassRetryable Class = iota
	// ClassUnavailable: the broker cannot be reached, throttles, or refuses
	// everybody (credentials, a missing fixed destination). Spends no attempt;
	// the route waits and goes on by itself.
	ClassUnavailable
	// ClassPermanent: wrong with this message (too large, invalid, or a
	// destination taken from the message that does not exist). Fails at once.
	ClassPermanent
)

func (c Class) String() string {
	switch c {
	case ClassUnavailable:
		return "unavailable"
	case ClassPermanent:
		return "permanent"
	default:
		return "retryable"
	}
}

// Error gives an error its class. Adapters make it with Retryable, Unavailable,
// TimedOut, Refused, Unsent and Permanent, because they know their broker; the
// relay never looks at error texts.
type Error struct {
	Class Class
	// Timeout: no answer in time. The broker may be away, or this message may
	// be the one it chokes on: the relay tells by trying another one.
	Timeout bool
	// Unsent: the message was not handed to the broker, so it cannot have
	// arrived, whatever else went wrong. Without it a message that had no
	// answer in time counts as one that may have.
	Unsent bool
	// Alarm: an operator has to act (credentials, rights, a missing
	// destination); waiting alone will not mend it.
	Alarm bool
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Retryable marks err as ClassRetryable.
func Retryable(err error) error { return &Error{Class: ClassRetryable, Err: err} }

// Unavailable marks err as ClassUnavailable.
func Unavailable(err error) error { return &Error{Class: ClassUnavailable, Err: err} }

// TimedOut marks err as ClassUnavailable for want of an answer in time.
func TimedOut(err error) error {
	return &Error{Class: ClassUnavailable, Timeout: true, Err: err}
}

// Refused marks err as ClassUnavailable until an operator mends it.
func Refused(err error) error {
	return &Error{Class: ClassUnavailable, Alarm: true, Err: err}
}

// Unsent marks err, which keeps its class, as one of before the message was
// handed to the broker.
func Unsent(err error) error {
	return &Error{Class: ClassOf(err), Timeout: IsTimeout(err), Alarm: IsAlarm(err), Unsent: true, Err: err}
}

// Permanent marks err as ClassPermanent.
func Permanent(err error) error { return &Error{Class: ClassPermanent, Err: err} }

// ClassOf returns the class of err, which must not be nil. An error without a
// class is retryable, but for a context's end, which says nothing about the
// message and so is unavailable.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return ClassUnavailable
	}
	return ClassRetryable
}

// IsTimeout reports whether err means that no answer came in time.
func IsTimeout(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Timeout
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// IsAlarm reports whether an operator has to act before err can go away.
func IsAlarm(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Alarm
}

// IsUnsent reports whether the message certainly was not handed to the broker.
func IsUnsent(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Unsent
}
