package awsproxy

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// Entry is one entry of a batch request, with its place in it.
type Entry struct {
	Index int
	// JSON is the entry as SQS's protocol has it. An entry of SNS is an object
	// of its form fields, such as {"Id":"0","Message":"…"}.
	JSON string

	id string
}

// At chooses entries by their place, counted from 0.
func At(indices ...int) func(Entry) bool {
	return func(e Entry) bool { return slices.Contains(indices, e.Index) }
}

// Containing chooses the entries whose JSON contains the text.
func Containing(text string) func(Entry) bool {
	return func(e Entry) bool { return strings.Contains(e.JSON, text) }
}

// batch is a batch request in its protocol.
type batch interface {
	entries() []Entry
	// only is the body of the request with these entries alone.
	only(kept []Entry) []byte
	// failed is the answer about an entry that failed.
	failed(e Entry, code string, senderFault bool) answered
	parse(answer []byte) (batchAnswer, error)
	format(batchAnswer) []byte
	contentType() string
}

// batchAnswer is what a service answers to a batch.
type batchAnswer struct{ successful, failed []answered }

// answered is what it answers about one entry.
type answered struct {
	id  string
	raw []byte
}

func (x *exchange) batch() (batch, bool) {
	if x.form != nil {
		return parseQueryBatch(x.form)
	}
	return parseJSONBatch(x.body)
}

func split(b batch, choose func(Entry) bool) (kept, chosen []Entry) {
	for _, e := range b.entries() {
		if choose(e) {
			chosen = append(chosen, e)
		} else {
			kept = append(kept, e)
		}
	}
	return kept, chosen
}

// FailEntries is a partial failure of SendMessageBatch, DeleteMessageBatch,
// ChangeMessageVisibilityBatch or PublishBatch: the chosen entries come back in
// Failed with the code; only the others are forwarded. Other requests pass.
func FailEntries(choose func(Entry) bool, code string, senderFault bool) Fault {
	return Fault{do: func(x *exchange) bool {
		b, ok := x.batch()
		if !ok {
			return false
		}
		kept, chosen := split(b, choose)
		if len(chosen) == 0 {
			return false
		}
		var merged batchAnswer
		a := answer{status: http.StatusOK, header: http.Header{"Content-Type": {b.contentType()}}}
		if len(kept) > 0 {
			var err error
			if a, err = x.forward(b.only(kept)); err == nil && a.status == http.StatusOK {
				merged, err = b.parse(a.body)
			}
			if err != nil || a.status != http.StatusOK {
				x.send(a)
				return true
			}
		}
		for _, e := range chosen {
			merged.failed = append(merged.failed, b.failed(e, code, senderFault))
		}
		a.body = b.format(merged)
		x.send(a)
		return true
	}}
}

// OmitEntries forwards a batch whole and leaves the chosen entries out of the
// answer. Other requests pass.
func OmitEntries(choose func(Entry) bool) Fault {
	return Fault{do: func(x *exchange) bool {
		b, ok := x.batch()
		if !ok {
			return false
		}
		_, chosen := split(b, choose)
		a, err := x.forward(x.body)
		var all batchAnswer
		if err == nil {
			all, err = b.parse(a.body)
		}
		if err != nil {
			x.send(a)
			return true
		}
		gone := func(one answered) bool {
			return slices.ContainsFunc(chosen, func(e Entry) bool { return e.id == one.id })
		}
		all.successful = slices.DeleteFunc(all.successful, gone)
		all.failed = slices.DeleteFunc(all.failed, gone)
		a.body = b.format(all)
		x.send(a)
		return true
	}}
}

const jsonType = "application/x-amz-json-1.0"

// jsonBatch is a batch of SQS; what is not Entries stays as it came.
type jsonBatch struct {
	fields map[string]json.RawMessage
	raw    []json.RawMessage
}

func parseJSONBatch(body []byte) (batch, bool) {
	var b jsonBatch
	if json.Unmarshal(body, &b.fields) != nil || json.Unmarshal(b.fields["Entries"], &b.raw) != nil {
		return nil, false
	}
	return &b, true
}

func (b *jsonBatch) contentType() string { return jsonType }

func (b *jsonBatch) entries() []Entry {
	all := make([]Entry, len(b.raw))
	for i, raw := range b.raw {
		all[i] = Entry{Index: i, JSON: string(raw), id: jsonID(raw)}
	}
	return all
}

func (b *jsonBatch) only(kept []Entry) []byte {
	raw := make([]json.RawMessage, len(kept))
	for i, e := range kept {
		raw[i] = b.raw[e.Index]
	}
	b.fields["Entries"] = mustJSON(raw)
	return mustJSON(b.fields)
}

func (b *jsonBatch) failed(e Entry, code string, senderFault bool) answered {
	return answered{e.id, mustJSON(map[string]any{
		"Id": e.id, "Code": code, "SenderFault": senderFault, "Message": "injected by awsproxy",
	})}
}

func (b *jsonBatch) parse(body []byte) (batchAnswer, error) {
	var in struct{ Successful, Failed []json.RawMessage }
	if err := json.Unmarshal(body, &in); err != nil {
		return batchAnswer{}, err
	}
	wrap := func(all []json.RawMessage) []answered {
		out := make([]answered, len(all))
		for i, raw := range all {
			out[i] = answered{jsonID(raw), raw}
		}
		return out
	}
	return batchAnswer{wrap(in.Successful), wrap(in.Failed)}, nil
}

func (b *jsonBatch) format(a batchAnswer) []byte {
	unwrap := func(all []answered) []json.RawMessage {
		out := make([]json.RawMessage, len(all))
		for i, one := range all {
			out[i] = one.raw
		}
		return out
	}
	return mustJSON(map[string][]json.RawMessage{"Successful": unwrap(a.successful), "Failed": unwrap(a.failed)})
}

func jsonID(entry json.RawMessage) string {
	var e struct{ Id string }
	_ = json.Unmarshal(entry, &e)
	return e.Id
}
