package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// maxFile is the largest configuration or secret file that is read, in bytes.
const maxFile = 1 << 20

// file reads the YAML tree of one file. It reads nodes, not structs, so that
// every problem has its place and one problem does not hide the next.
type file struct {
	*reader
	name   string
	lookup func(variable string) (string, bool)
}

// field is one key that a mapping may have. Exactly one of read and scalar is set.
type field struct {
	key    string
	scalar func(value)
	node   func(n *yaml.Node, setting string)
}

// parse returns the root of the document; nil if there is none (an empty file)
// or it is broken, which is reported.
func (f *file) parse(data []byte) *yaml.Node {
	if at := invalid(data); at >= 0 {
		before := data[:at]
		f.problems.add(origin{
			file:   f.name,
			line:   1 + bytes.Count(before, []byte("\n")),
			column: at - bytes.LastIndexByte(before, '\n'),
		}, "", "is not text", "save the file as UTF-8 without control characters")
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		f.problems.add(origin{file: f.name}, "", "cannot be read as YAML", "")
		return nil
	}
	var document, second yaml.Node
	if err := loader.Load(&document); err != nil {
		f.syntax(err)
		return nil
	}
	if err := loader.Load(&second); err == nil {
		f.problems.add(f.at(&second), "", "starts a second document", "keep one document: remove the line with ---")
	} else {
		f.syntax(err)
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) == 0 {
		return nil
	}
	root := document.Content[0]
	if root.ShortTag() == "!!null" {
		return nil
	}
	return root
}

// invalid returns where data stops being printable UTF-8; -1 if nowhere.
func invalid(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size <= 1 || r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f {
			return i
		}
		i += size
	}
	return -1
}

var quoted = regexp.MustCompile(`'[^']*'|"[^"]*"`)

func (f *file) syntax(err error) {
	if errors.Is(err, io.EOF) {
		return
	}
	at, what := origin{file: f.name}, "cannot be read"
	if bad, ok := errors.AsType[*yaml.LoadError](err); ok {
		mark := bad.Mark
		if mark.Line == 0 {
			mark = bad.ContextMark
		}
		at.line, at.column = mark.Line, max(mark.Column, 1)
		what = bad.Message
		// What is quoted may come from the file, hence from a secret; a
		// quoted punctuation mark is the parser's own.
		what = quoted.ReplaceAllStringFunc(what, func(q string) string {
			if strings.ContainsAny(q, ",]}:-?<>%") && len(q) <= 5 {
				return q
			}
			return "…"
		})
		if strings.Contains(what, "unknown anchor") {
			what = "a value that starts with * names an anchor, and there is none of that name"
		}
		if bad.ContextMsg != "" && bad.ContextMark.Line > 0 && bad.ContextMark.Line < at.line {
			what += " " + bad.ContextMsg + " that begins in line " + strconv.Itoa(bad.ContextMark.Line)
		}
	}
	f.problems.add(at, "", "YAML syntax: "+what, hint(what))
}

// hint helps with the mistakes that people make most.
func hint(what string) string {
	switch {
	case strings.Contains(what, "cannot start any token"):
		return "indent with spaces, not tabs, and put values that start with @, ` or % in quotes"
	case strings.Contains(what, "mapping values are not allowed"):
		return "put a value that contains \": \" in quotes, and check the indentation"
	case strings.Contains(what, "starts with *"):
		return "put it in quotes, as in topics: [\"*.created\"]"
	default:
		return "check the indentation and the quotes here and in the line above"
	}
}

func (f *file) at(n *yaml.Node) origin {
	return origin{file: f.name, line: n.Line, column: n.Column}
}

// resolve follows aliases, which YAML allows for whole values.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

// mapping reads the keys of n by fields. path is the mapping's own setting,
// empty for the whole file.
func (f *file) mapping(n *yaml.Node, path string, fields []field) {
	m := resolve(n)
	if m.Kind != yaml.MappingNode {
		word := tagWords[m.ShortTag()]
		if word == "" {
			word = "something else"
		}
		f.problems.add(f.at(n), path, "is "+word+" where a mapping belongs", "write lines such as \""+fields[0].key+": …\" under it")
		return
	}
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].key
	}
	first := make(map[string]int)
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, val := resolve(m.Content[i]), m.Content[i+1]
		at := f.at(m.Content[i])
		if key.Kind != yaml.ScalarNode {
			f.problems.add(at, path, "a key is not a plain word", didYouMean("", names))
			continue
		}
		setting := join(path, key.Value)
		if line, seen := first[key.Value]; seen {
			f.problems.add(at, Redact(setting), "stands here a second time", "remove this one or the one in line "+strconv.Itoa(line))
			continue
		}
		first[key.Value] = at.line
		known := false
		for _, fd := range fields {
			if fd.key != key.Value {
				continue
			}
			known = true
			if fd.scalar != nil {
				fd.scalar(f.scalar(val, setting))
			} else {
				fd.node(val, setting)
			}
		}
		if !known && key.Value == "<<" {
			f.problems.add(at, path, "merge keys (<<) are not supported", "write the settings out, or use an alias for a whole value")
		} else if !known {
			f.problems.add(at, path, "unknown setting "+quote(key.Value), didYouMean(key.Value, names))
		}
	}
}

// sequence calls read for each entry of n, with the setting's index.
func (f *file) sequence(n *yaml.Node, setting, example string, read func(n *yaml.Node, setting string)) {
	s := resolve(n)
	if s.Kind != yaml.SequenceNode {
		word := tagWords[s.ShortTag()]
		if word == "" {
			word = "something else"
		}
		f.problems.add(f.at(n), setting, "is "+word+" where a list belongs", "write "+example)
		return
	}
	if len(s.Content) == 0 {
		f.problems.add(f.at(n), setting, "is an empty list", "write "+example)
	}
	for i, entry := range s.Content {
		read(entry, setting+"["+strconv.Itoa(i)+"]")
	}
}

// scalar reads one value and fills its variables in. That happens after the
// parsing, so that a variable's value is text and nothing else, whatever
// characters it has.
func (f *file) scalar(n *yaml.Node, setting string) value {
	s := resolve(n)
	v := value{at: f.at(n), setting: setting, tag: s.ShortTag()}
	if s.Kind != yaml.ScalarNode {
		return v
	}
	v.text, v.shown = s.Value, s.Value
	text, used, problems := substitute(s.Value, f.lookup)
	for _, p := range problems {
		f.problems.add(v.at, setting, p[0], p[1])
		v.broken = true
	}
	v.text = text
	if used {
		v.tag = "" // its type is what the setting takes, as with a variable of ours
	} else {
		v.shown = text
	}
	return v
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
