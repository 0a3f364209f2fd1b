package mailcatcher

import (
	"bytes"
	"errors"
	"io"
	"net/mail"
	"time"

	message "github.com/emersion/go-message/mail"
)

// Mail is a mail that was caught, or as much of it as has come.
type Mail struct {
	// From and To are the envelope's addresses.
	From string
	To   []string
	// TLS and User tell how it came; User is empty without authentication.
	TLS  bool
	User string
	// Received is when it was complete.
	Received time.Time
	// Raw is the mail as it came, and the rest what it says.
	Raw []byte

	MessageID string // without < and >
	Subject   string
	Sender    mail.Address   // of the field From
	Names     []mail.Address // of the field To
	Header    map[string][]string
	Text      string // the plain part
	HTML      string // the HTML part
}

// parse reads Raw.
func (m *Mail) parse() error {
	raw, err := mail.ReadMessage(bytes.NewReader(m.Raw))
	if err != nil {
		return err
	}
	m.Header = raw.Header
	reader, err := message.CreateReader(bytes.NewReader(m.Raw))
	if err != nil {
		return err
	}
	var errs [4]error
	m.MessageID, errs[0] = reader.Header.MessageID()
	m.Subject, errs[1] = reader.Header.Subject()
	from, err := reader.Header.AddressList("From")
	errs[2] = err
	if len(from) == 1 {
		m.Sender = *from[0]
	}
	to, err := reader.Header.AddressList("To")
	errs[3] = err
	for _, a := range to {
		m.Names = append(m.Names, *a)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	return m.parseParts(reader)
}

func (m *Mail) parseParts(reader *message.Reader) error {
	for {
		part, err := reader.NextPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		body, err := io.ReadAll(part.Body)
		if err != nil {
			return err
		}
		header, ok := part.Header.(*message.InlineHeader)
		if !ok {
			continue
		}
		switch kind, _, _ := header.ContentType(); {
		case kind == "text/html" && m.HTML == "":
			m.HTML = string(body)
		case kind == "text/plain" && m.Text == "":
			m.Text = string(body)
		}
	}
}
