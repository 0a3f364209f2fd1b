package mailcatcher

import (
	"crypto/subtle"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// session is one client's connection.
type session struct {
	catcher *Catcher
	conn    *smtp.Conn
	user    string
	mail    Mail
}

var _ smtp.AuthSession = (*session)(nil)

func (s *session) AuthMechanisms() []string {
	if s.catcher.options.User == "" {
		return nil
	}
	return []string{sasl.Plain, sasl.Login}
}

func (s *session) Auth(mechanism string) (sasl.Server, error) {
	switch mechanism {
	case sasl.Plain:
		return sasl.NewPlainServer(func(_, user, password string) error { return s.logIn(user, password) }), nil
	case sasl.Login:
		return &loginServer{logIn: s.logIn}, nil
	}
	return nil, smtp.ErrAuthUnknownMechanism
}

func (s *session) logIn(user, password string) error {
	o := s.catcher.options
	if subtle.ConstantTimeCompare([]byte(user), []byte(o.User))&subtle.ConstantTimeCompare([]byte(password), []byte(o.Password)) != 1 {
		return smtp.ErrAuthFailed
	}
	s.user = user
	return nil
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if s.catcher.options.User != "" && s.user == "" {
		return &smtp.SMTPError{Code: 530, EnhancedCode: smtp.EnhancedCode{5, 7, 0}, Message: "Authentication required"}
	}
	_, encrypted := s.conn.TLSConnectionState()
	s.mail = Mail{From: from, TLS: encrypted, User: s.user}
	return s.catcher.at(AtSender, s.mail)
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	m := s.mail
	m.To = append(slices.Clone(m.To), to)
	if err := s.catcher.at(AtRecipient, m); err != nil {
		return err
	}
	s.mail = m
	return nil
}

func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	m := s.mail
	m.Received, m.Raw = time.Now(), raw
	if err := m.parse(); err != nil {
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "Not a mail"}
	}
	if err := s.catcher.at(AtData, m); err != nil {
		return err
	}
	s.catcher.keep(m)
	return s.catcher.at(AtAnswer, m)
}

func (s *session) Reset()        { s.mail = Mail{} }
func (s *session) Logout() error { return nil }

// loginServer speaks the mechanism LOGIN.
type loginServer struct {
	logIn func(user, password string) error
	step  int
	user  string
}

func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	if l.step == 0 && response == nil {
		return []byte("Username:"), false, nil
	}
	l.step++
	switch l.step {
	case 1:
		l.user = string(response)
		return []byte("Password:"), false, nil
	case 2:
		return nil, true, l.logIn(l.user, string(response))
	}
	return nil, false, fmt.Errorf("mailcatcher: %w", sasl.ErrUnexpectedClientResponse)
}
