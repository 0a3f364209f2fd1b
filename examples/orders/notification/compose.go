package notification

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
	"net/mail"
	"strings"
	texttemplate "text/template"
	"time"
	"unicode"

	message "github.com/emersion/go-message/mail"

	"github.com/postrider/postrider/examples/orders/event"
)

//go:embed templates
var templates embed.FS

var (
	textMail = texttemplate.Must(texttemplate.ParseFS(templates, "templates/mail.txt"))
	htmlMail = template.Must(template.ParseFS(templates, "templates/mail.html"))
)

// letter is a mail that is ready to be sent.
type letter struct {
	from, to string // of the envelope
	raw      []byte
}

// maxName is how many characters of a customer's name are shown.
const maxName = 200

// compose writes the order's mail. Whatever the event holds, it yields one mail
// to one recipient whose text and HTML show the customer's name as text.
func (s *Service) compose(e event.OrderCreated) (letter, error) {
	to := addressAt(e.CustomerID, s.domain)
	placed, err := time.Parse(time.RFC3339, e.CreatedAt)
	if err != nil {
		return letter{}, err
	}
	shown := struct{ Customer, Order, Amount, Placed string }{
		Customer: shownName(e.CustomerID),
		Order:    e.OrderID,
		Amount:   amount(e.AmountCents),
		Placed:   placed.UTC().Format("2 January 2006, 15:04 UTC"),
	}
	var h message.Header
	h.SetMessageID(messageID(e.OrderID, s.from.Address))
	h.SetDate(placed) // the same in every copy
	h.SetAddressList("From", []*mail.Address{&s.from})
	h.SetAddressList("To", []*mail.Address{{Name: shown.Customer, Address: to}})
	h.SetSubject("We have your order " + e.OrderID)
	h.Set("Auto-Submitted", "auto-generated") // no out-of-office answers (RFC 3834)
	h.Set("MIME-Version", "1.0")

	var raw bytes.Buffer
	parts, err := message.CreateInlineWriter(&raw, h)
	if err != nil {
		return letter{}, fmt.Errorf("write the mail: %w", err)
	}
	for _, part := range []struct {
		kind  string
		write func(io.Writer) error
	}{
		// The last one is what a mail program shows if it can.
		{"text/plain", func(w io.Writer) error { return textMail.Execute(w, shown) }},
		{"text/html", func(w io.Writer) error { return htmlMail.Execute(w, shown) }},
	} {
		var ph message.InlineHeader
		ph.SetContentType(part.kind, map[string]string{"charset": "utf-8"})
		w, err := parts.CreatePart(ph)
		if err == nil {
			err = part.write(w)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			return letter{}, fmt.Errorf("write the mail: %w", err)
		}
	}
	if err := parts.Close(); err != nil {
		return letter{}, fmt.Errorf("write the mail: %w", err)
	}
	return letter{from: s.from.Address, to: to, raw: raw.Bytes()}, nil
}

// messageID is the same for every copy of an order's mail.
func messageID(orderID, from string) string {
	return "order-" + orderID + from[strings.LastIndexByte(from, '@'):]
}

// shownName makes a name fit for one line of text: characters that break lines,
// or turn the direction of what follows, become visible.
func shownName(name string) string {
	runes := []rune(strings.ToValidUTF8(name, "\ufffd"))
	if len(runes) > maxName {
		runes = append(runes[:maxName-1], '…')
	}
	for i, r := range runes {
		if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			runes[i] = '\ufffd'
		}
	}
	return string(runes)
}

// amount writes cents exactly, with two digits after the point.
func amount(cents int64) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }
