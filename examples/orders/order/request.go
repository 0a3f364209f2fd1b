package order

import (
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/examples/orders/web"
)

// Limits of a request.
const (
	// MaxBody is how many bytes a request body may have.
	MaxBody = 64 << 10
	// MaxCustomer is how many characters a customer's id may have.
	MaxCustomer = 200
	// MaxKey is how many characters an idempotency key may have.
	MaxKey = 255
)

// keyHeader makes retries safe: the second request with a key gets the first
// one's order.
const keyHeader = "Idempotency-Key"

// request is a valid request for an order.
type request struct {
	customerID  string
	amountCents int64
	key         string // empty: none
}

// readRequest reads and checks everything. A problem names what is wrong.
func readRequest(w http.ResponseWriter, r *http.Request) (request, *web.Problem) {
	if problem := checkContentType(r.Header.Get("Content-Type")); problem != nil {
		return request{}, problem
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return request{}, &web.Problem{
			Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("the body has more than %d bytes", MaxBody),
			Fields: []web.Field{{Name: "body", Detail: fmt.Sprintf("has more than %d bytes", MaxBody)}},
		}
	}
	if err != nil {
		return request{}, web.Invalid(web.Field{Name: "body", Detail: "could not be read to its end"})
	}
	// The fields' values stay undecoded at first, so that one answer can name
	// every wrong field.
	var fields struct {
		CustomerID  jsontext.Value `json:"customerId"`
		AmountCents jsontext.Value `json:"amountCents"`
	}
	if err := json.Unmarshal(body, &fields, json.RejectUnknownMembers(true)); err != nil {
		return request{}, web.Invalid(explain(err))
	}
	var req request
	var wrong []web.Field
	check := func(field, problem string) {
		if problem != "" {
			wrong = append(wrong, web.Field{Name: field, Detail: problem})
		}
	}
	check("customerId", decodeCustomer(fields.CustomerID, &req.customerID))
	check("amountCents", decodeAmount(fields.AmountCents, &req.amountCents))
	check(keyHeader, decodeKey(r.Header.Values(keyHeader), &req.key))
	if wrong != nil {
		return request{}, web.Invalid(wrong...)
	}
	return req, nil
}

func checkContentType(header string) *web.Problem {
	media, params, err := mime.ParseMediaType(header)
	charset := params["charset"]
	if err == nil && media == "application/json" && (charset == "" || strings.EqualFold(charset, "utf-8")) {
		return nil
	}
	return &web.Problem{
		Status: http.StatusUnsupportedMediaType,
		Detail: "Content-Type must be application/json, in UTF-8",
		Fields: []web.Field{{Name: "Content-Type", Detail: "must be application/json, in UTF-8"}},
	}
}

// explain turns a decoding error into the field that it is about.
func explain(err error) web.Field {
	var pointer jsontext.Pointer
	detail := "is not a JSON object in UTF-8"
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		pointer = syntactic.JSONPointer
		if errors.Is(err, jsontext.ErrDuplicateName) {
			detail = "appears twice"
		} else {
			detail = fmt.Sprintf("is not valid JSON in UTF-8, at byte %d", syntactic.ByteOffset)
		}
	} else if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		pointer = semantic.JSONPointer
		if errors.Is(err, json.ErrUnknownName) {
			detail = "is not a known field: there are customerId and amountCents"
		}
	}
	if pointer == "" {
		return web.Field{Name: "body", Detail: detail}
	}
	return web.Field{Name: strings.ToValidUTF8(pointer.LastToken(), "\ufffd"), Detail: detail}
}

// The decode functions return what is wrong with the value, or nothing.

func decodeCustomer(value jsontext.Value, customer *string) string {
	if value == nil {
		return "is missing"
	}
	if value.Kind() != '"' || json.Unmarshal(value, customer) != nil {
		return "must be a string"
	}
	switch {
	case strings.TrimSpace(*customer) == "":
		return "must not be empty"
	case utf8.RuneCountInString(*customer) > MaxCustomer:
		return fmt.Sprintf("must have at most %d characters", MaxCustomer)
	case strings.ContainsFunc(*customer, isUnfit):
		return "must not contain control characters or noncharacters"
	}
	return ""
}

// isUnfit reports characters that the database or a queue would refuse.
func isUnfit(r rune) bool {
	return unicode.IsControl(r) || r&0xfffe == 0xfffe
}

func decodeAmount(value jsontext.Value, amount *int64) string {
	if value == nil {
		return "is missing"
	}
	if value.Kind() != '0' || json.Unmarshal(value, amount) != nil || *amount <= 0 {
		return fmt.Sprintf("must be a whole number of cents from 1 to %d", math.MaxInt64)
	}
	return ""
}

func decodeKey(headers []string, key *string) string {
	if len(headers) == 0 {
		return ""
	}
	if len(headers) > 1 {
		return "must be sent once"
	}
	*key = headers[0]
	invisible := func(r rune) bool { return r < '!' || r > '~' }
	if *key == "" || len(*key) > MaxKey || strings.ContainsFunc(*key, invisible) {
		return fmt.Sprintf("must have 1 to %d visible ASCII characters", MaxKey)
	}
	return ""
}
