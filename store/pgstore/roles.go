package pgstore

import (
	_ "embed" // for roles.sql
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/jackc/pgx/v5"
)

//go:embed roles.sql
var rolesText string

var rolesTemplate = template.Must(template.New("roles.sql").Parse(rolesText))

// Roles are the names of the roles that share the work on a schema. An empty
// name is the default.
type Roles struct {
	Owner    string // has the schema, and migrates it; default postrider_owner
	Writer   string // enqueues; default postrider_writer
	Relay    string // publishes; default postrider_relay
	Viewer   string // looks; default postrider_viewer
	Operator string // looks and acts; default postrider_operator
	Consumer string // records what it has handled; default postrider_consumer
}

// list are the names, the owner's first.
func (r Roles) list() []string {
	names := []string{r.Owner, r.Writer, r.Relay, r.Viewer, r.Operator, r.Consumer}
	for i, kind := range []string{"owner", "writer", "relay", "viewer", "operator", "consumer"} {
		if names[i] == "" {
			names[i] = "postrider_" + kind
		}
	}
	return names
}

// odd reports whether a name could end a comment of the script, or the part of it
// that is quoted.
func odd(name string) bool {
	return strings.ContainsAny(name, "\r\n") || strings.Contains(name, "$roles$")
}

func (r Roles) validate() error {
	var errs []error
	names := r.list()
	for i, name := range names {
		switch {
		case Schema(name).Validate() != nil || odd(name) || name == "public" || name == "none":
			errs = append(errs, fmt.Errorf("%q cannot be the name of a role", name))
		case slices.Index(names, name) < i:
			errs = append(errs, fmt.Errorf("two roles are named %q", name))
		}
	}
	return errors.Join(errs...)
}

// RolesScript is the SQL that makes the roles, unless they are there, and gives
// each of them what it needs and nothing else. It may be run again, and has to be
// after a migration. The schema has to be Postrider's alone. Only Schema and
// Shards of the options count; Shards must be what the schema has (0:
// DefaultShards), otherwise the script fails and changes nothing.
func RolesScript(opts Options, roles Roles) (string, error) {
	errs := []error{opts.validate(), roles.validate()}
	if name := opts.Schema.Name(); name == "public" || odd(name) {
		errs = append(errs, fmt.Errorf("schema %q: roles need a schema that is the outbox's alone", name))
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	shards, err := opts.shards(0)
	if err != nil {
		return "", err
	}
	var logs, sequences, quoted, literals []string
	for shard := range shards {
		logs = append(logs, opts.Schema.quoted()+fmt.Sprintf(".log_%d", shard))
		sequences = append(sequences, opts.Schema.quoted()+fmt.Sprintf(".log_%d_seq", shard))
	}
	for _, name := range roles.list() {
		quoted = append(quoted, pgx.Identifier{name}.Sanitize())
		literals = append(literals, "'"+quoteLiteral(name)+"'")
	}
	var b strings.Builder
	err = rolesTemplate.Execute(&b, map[string]any{
		"OwnNames": ownNames, "Schema": opts.Schema.quoted(), "SchemaLiteral": quoteLiteral(opts.Schema.quoted()),
		"KeyType": quoteLiteral(fmt.Sprintf("%s.key_of_%d_shards", opts.Schema.quoted(), shards)),
		"Logs":    logs, "LogList": strings.Join(logs, ", "), "SequenceList": strings.Join(sequences, ", "),
		"Literals": literals, "All": strings.Join(quoted[1:], ", "),
		"Owner": quoted[0], "Writer": quoted[1], "Relay": quoted[2], "Viewer": quoted[3], "Operator": quoted[4], "Consumer": quoted[5],
	})
	return b.String(), err
}
