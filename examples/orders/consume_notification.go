package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/mail"
	"os"
	"time"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/examples/orders/cloud"
	"github.com/postrider/postrider/examples/orders/inboxdb"
	"github.com/postrider/postrider/examples/orders/notification"
)

type notificationCommand struct {
	Queue  string `help:"Name, URL or ARN of the service's queue." default:"notifications" env:"ORDERS_NOTIFICATION_QUEUE"`
	DB     string `help:"The service's own database: postgres://user@host:5432/name or sqlite:PATH." default:"sqlite:notification.db" env:"ORDERS_NOTIFICATION_DB" placeholder:"URL"`
	Schema string `help:"Schema of the inbox in PostgreSQL." default:"postrider" env:"POSTRIDER_SCHEMA"`

	SMTP             string        `name:"smtp" help:"Mail server to send through." required:"" env:"ORDERS_SMTP" placeholder:"HOST:PORT"`
	SMTPTLS          string        `name:"smtp-tls" help:"How its connections are encrypted: none, starttls or tls." enum:"none,starttls,tls" default:"starttls" env:"ORDERS_SMTP_TLS"`
	SMTPCA           string        `name:"smtp-ca" help:"File with the certificates to trust, in PEM. Default: the system's." env:"ORDERS_SMTP_CA" type:"path" placeholder:"FILE"`
	SMTPUser         string        `name:"smtp-user" help:"User to log in as; the password is in a file, or in the variable ORDERS_SMTP_PASSWORD. Default: no login." env:"ORDERS_SMTP_USER" placeholder:"NAME"`
	SMTPPasswordFile string        `name:"smtp-password-file" help:"File with the user's password." env:"ORDERS_SMTP_PASSWORD_FILE" type:"path" placeholder:"FILE"`
	SMTPTimeout      time.Duration `name:"smtp-timeout" help:"How long connecting may take, and handing a mail over." default:"30s" env:"ORDERS_SMTP_TIMEOUT"`
	From             string        `help:"Sender of the mails." default:"The shop <orders@shop.example>" env:"ORDERS_MAIL_FROM"`
	CustomerDomain   string        `help:"Domain that customers have their addresses at; the default is one that no mail reaches." default:"customers.example" env:"ORDERS_MAIL_DOMAIN"`

	//lint:ignore SA5008 kong takes several values of set
	consumerFlags `embed:"" envprefix:"ORDERS_NOTIFICATION_" set:"addr=127.0.0.1:3002" set:"retry=10s"`
}

func (c *notificationCommand) Run(ctx context.Context, log *slog.Logger) error {
	where, err := config.ParseDatabase(c.DB)
	if err != nil {
		return err
	}
	server, err := c.server()
	if err != nil {
		return usage(err)
	}
	from, err := mail.ParseAddress(c.From)
	if err != nil {
		return usage(fmt.Errorf("--from: %w", err))
	}
	aws, err := cloud.Load(ctx)
	if err != nil {
		return usage(err)
	}
	db, err := inboxdb.Open(ctx, where, inboxdb.Options{Schema: c.Schema, Connections: c.Handlers + readers})
	if err != nil {
		return err
	}
	defer db.Close()
	s, err := notification.New(notification.Config{
		DB: db, Server: server, From: *from, Domain: c.CustomerDomain, Logger: log,
	})
	if err != nil {
		return usage(err)
	}
	return c.run(ctx, log, aws, reaction{
		name: "notification", queue: c.Queue, addr: "127.0.0.1:3002", handle: s.Handle, check: db.Check,
	}, "database", where, "smtp", c.SMTP, "tls", c.SMTPTLS)
}

// passwordVariable holds the password of the mail server's user. There is no
// flag for it, because other users of the machine see flags.
const passwordVariable = "ORDERS_SMTP_PASSWORD"

// server reads the settings that are in files.
func (c *notificationCommand) server() (notification.Server, error) {
	s := notification.Server{Addr: c.SMTP, TLS: notification.TLS(c.SMTPTLS), User: c.SMTPUser, Timeout: c.SMTPTimeout}
	password, given := os.LookupEnv(passwordVariable)
	if c.SMTPPasswordFile != "" {
		if given && password != "" {
			return s, errors.New("the mail server's password is both in a file and in " + passwordVariable + ": give one")
		}
		text, err := os.ReadFile(c.SMTPPasswordFile)
		if err != nil {
			return s, fmt.Errorf("read the mail server's password: %w", err)
		}
		password = string(bytes.TrimRight(text, "\r\n"))
	}
	s.Password = config.NewSecret(password)
	if c.SMTPCA != "" {
		pem, err := os.ReadFile(c.SMTPCA)
		if err != nil {
			return s, fmt.Errorf("read the certificates for the mail server: %w", err)
		}
		s.Roots = x509.NewCertPool()
		if !s.Roots.AppendCertsFromPEM(pem) {
			return s, fmt.Errorf("%s has no certificates in PEM", c.SMTPCA)
		}
	}
	return s, nil
}
