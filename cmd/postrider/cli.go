package main

import (
	"io"
	"maps"

	"github.com/alecthomas/kong"

	"github.com/postrider/postrider/config"
)

// cli is the command line. Settings are texts here: package config reads them,
// as it reads variables and the file, so that one report tells of everything.
type cli struct {
	Relay   relayCommand   `cmd:"" help:"Publish messages as they are committed, until stopped."`
	Migrate migrateCommand `cmd:"" help:"Create, update and check Postrider's tables."`
	Status  statusCommand  `cmd:"" help:"Tell what is wrong, and how each route stands."`
	List    listCommand    `cmd:"" help:"List messages by route, state, topic, key and time."`
	Show    showCommand    `cmd:"" help:"Show everything about one message."`
	Retry   retryCommand   `cmd:"" help:"Send failed messages again."`
	Release releaseCommand `cmd:"" help:"Let a key go on that waits behind a failed message."`
	Discard discardCommand `cmd:"" help:"Give messages up that wait or failed."`
	Replay  replayCommand  `cmd:"" help:"Send messages again that were sent before."`
	Pause   pauseCommand   `cmd:"" help:"Stop a route until it is resumed."`
	Resume  resumeCommand  `cmd:"" help:"Let a paused route go on."`
	Route   routeCommand   `cmd:"" help:"List routes, and remove one for good."`
	Audit   auditCommand   `cmd:"" help:"List what operators did."`
	Health  healthCommand  `cmd:"" help:"Ask the relay on this machine whether messages flow."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

// commonFlags are settings that every command with a database has.
type commonFlags struct {
	Config    string  `short:"c" placeholder:"FILE" help:"YAML file with the settings. Without it ./postrider.yaml, if it is there."`
	DB        *string `name:"db" aliases:"database" placeholder:"URL" help:"postgres://user@host:5432/name or sqlite:PATH. The password may stay out of it: PGPASSWORD, ~/.pgpass."`
	DBFile    *string `name:"db-file" aliases:"database-file" placeholder:"FILE" help:"File that holds the database's URL."`
	Schema    *string `placeholder:"NAME" help:"PostgreSQL schema of the tables (postrider)."`
	LogFormat *string `placeholder:"FORMAT" help:"text or json (text)."`
	LogLevel  *string `placeholder:"LEVEL" help:"debug, info, warn or error (info)."`
}

func (f *commonFlags) settings() map[string]string {
	m := make(map[string]string)
	put(m, "database", f.DB)
	put(m, "database_file", f.DBFile)
	put(m, "schema", f.Schema)
	put(m, "log_format", f.LogFormat)
	put(m, "log_level", f.LogLevel)
	return m
}

func put(m map[string]string, key string, flag *string) {
	if flag != nil {
		m[key] = *flag
	}
}

type relayFlags struct {
	To     *string `placeholder:"DESTINATION" help:"Send every topic there, such as sqs://orders or sns://orders; {topic}, {key} and {type} stand for the message's own. For more routes use a file."`
	Source *string `placeholder:"SOURCE" help:"How to learn of new messages: auto or poll (auto)."`
	Lease  *string `placeholder:"DURATION" help:"How long after a crash another relay takes over (15s)."`
	HTTP   *string `name:"http" placeholder:"ADDRESS" help:"Where to serve /healthz, /readyz and /metrics, or off (127.0.0.1:8080)."`

	RetentionSent   *string `placeholder:"DURATION" help:"How long sent messages are kept: such as 24h, 0s for no longer than needed, or keep (24h)."`
	RetentionFailed *string `placeholder:"DURATION" help:"How long failed messages are kept, or keep (keep)."`

	LimitsInFlightBytes    *string `placeholder:"SIZE" help:"Bytes of messages in memory at most (64MiB)."`
	LimitsInFlightMessages *string `placeholder:"N" help:"Messages in memory at most (10000)."`
	LimitsParkedPending    *string `placeholder:"N" help:"Messages set aside for destinations that are away at most, where a route has several (100000)."`
	LimitsConnections      *string `placeholder:"N" help:"Connections to the database at most (8)."`
}

func (f *relayFlags) settings(m map[string]string) {
	put(m, "to", f.To)
	put(m, "source", f.Source)
	put(m, "lease", f.Lease)
	put(m, "http", f.HTTP)
	put(m, "retention.sent", f.RetentionSent)
	put(m, "retention.failed", f.RetentionFailed)
	put(m, "limits.in_flight_bytes", f.LimitsInFlightBytes)
	put(m, "limits.in_flight_messages", f.LimitsInFlightMessages)
	put(m, "limits.parked_pending", f.LimitsParkedPending)
	put(m, "limits.connections", f.LimitsConnections)
}

func load(p *process, common *commonFlags, more *relayFlags, need config.Input) (*config.Config, error) {
	flags := common.settings()
	maps.Copy(flags, need.Flags) // the command's own
	need.File, need.Environ, need.Flags = common.Config, p.Environ, flags
	if more != nil {
		more.settings(need.Flags)
	}
	return config.Load(need)
}

const about = `Publish the messages that applications enqueue in their own database transactions.

First create the tables, then run as many relays as you like:

  postrider migrate up --db postgres://shop@db.example/shop
  postrider relay --db postgres://shop@db.example/shop --to sqs://orders

When something is wrong:

  postrider status

Every setting is a flag, a variable, and a key of the file unless it is --config or --to: --log-level is POSTRIDER_LOG_LEVEL and log_level. The flag wins, then the variable, then the file.

Exit codes: 0 well, 1 something is missing or failed, 2 wrong command line or settings, 3 cannot connect to the database, 4 stopped with messages that may be published again.`

func options(p *process, exit func(int)) []kong.Option {
	return []kong.Option{
		kong.Name("postrider"),
		kong.Description(about),
		kong.Writers(p.Stdout, p.Stderr),
		kong.Exit(exit),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	}
}

func printLines(w io.Writer, lines ...string) error {
	for _, l := range lines {
		if _, err := io.WriteString(w, l+"\n"); err != nil {
			return err
		}
	}
	return nil
}
