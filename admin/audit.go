package admin

import "time"

// Entry is one action of an operator as it was recorded.
type Entry struct {
	// ID rises with every entry.
	ID int64 `json:"id"`
	// At is by the database's clock.
	At time.Time `json:"at,omitzero"`
	// By is who did it, such as "anna@laptop".
	By string `json:"by"`
	// Action is an Action's name, or pause, resume or remove.
	Action string `json:"action"`
	// Route is empty if it was about several.
	Route string `json:"route"`
	// Filter says about which messages, as they were asked for. Nil for routes.
	Filter *Filter `json:"filter,omitempty"`
	// Count is how many messages were changed or, with a route, deleted.
	Count int64 `json:"count"`
	// Note is why, in the operator's words.
	Note string `json:"note,omitempty"`
}
