package pgstore

import (
	"fmt"
	"strings"
)

const (
	// ownNames has the names in migrations mean what PostgreSQL means by them,
	// whatever the role's settings are.
	ownNames = `SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL standard_conforming_strings = on`

	// sessionSQL also tells whether there are tables.
	sessionSQL = `SELECT pg_catalog.to_regclass($1::pg_catalog.text) IS NOT NULL, pg_catalog.current_schemas(true)::pg_catalog.text[],
		pg_catalog.current_setting('server_encoding'), pg_catalog.current_setting('client_encoding')`
)

// session is what our statements depend on in a session.
type session struct {
	path           []string // schemas in the order in which names are looked for
	server, client string   // encodings
}

// check refuses a session in which our statements could mean something else, or
// in which texts could change on their way. An outbox in another encoding than
// UTF8 could not take every message, nor the text of every error.
func (s session) check() error {
	for _, schema := range s.path {
		if schema == "pg_catalog" {
			break
		}
		if !strings.HasPrefix(schema, "pg_temp_") { // which functions and operators are not looked for in
			return fmt.Errorf("search_path has schema %q before pg_catalog, so what is in it would take the place of PostgreSQL's own functions: "+
				"leave pg_catalog out of search_path, or write it first", schema)
		}
	}
	if s.server != "UTF8" {
		return fmt.Errorf("the database has the encoding %s, and the outbox needs UTF8: use a database made with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0", s.server)
	}
	if s.client != "UTF8" {
		return clientEncoding(s.client)
	}
	return nil
}

// clientEncoding refuses a session that takes our texts for another encoding.
func clientEncoding(name string) error {
	return fmt.Errorf("client_encoding of this session is %s, so texts that are not ASCII would change on their way: add client_encoding=UTF8 to the database's URL", name)
}

// escapeLiteral is an SQL literal that every session reads alike, whatever its
// standard_conforming_strings: function bodies are read where they are called.
func escapeLiteral(text string) string {
	literal := "'" + quoteLiteral(text) + "'"
	if strings.Contains(text, `\`) {
		literal = "E" + strings.ReplaceAll(literal, `\`, `\\`)
	}
	return literal
}
