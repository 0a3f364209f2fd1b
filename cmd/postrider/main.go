// Command postrider is the operator's binary: it publishes what applications
// enqueued, and looks after the tables. Everything is wired here, in the open:
// wire.go names every store and every broker that this binary knows.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/postrider/postrider/config"
)

// Exit codes.
const (
	exitWell      = 0
	exitFinding   = 1 // something is missing or went wrong
	exitUsage     = 2 // the command line or the settings are wrong
	exitConnect   = 3 // the database cannot be reached
	exitUnsettled = 4 // stopped, and messages may be published again
)

func main() {
	os.Exit(run(&process{Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Terminal: isTerminal(os.Stdin), Exit: os.Exit}, os.Args[1:]))
}

// process is what a command may use of the world outside.
type process struct {
	Environ        []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Terminal: somebody may be there to answer on Stdin.
	Terminal bool
	// Exit ends the process at once; for a second signal.
	Exit func(code int)
}

// isTerminal takes every device for a terminal but the one that has no answers.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	none, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, none)
}

// failure is an error with an exit code and, for people, what to do next.
type failure struct {
	code int
	next string // may be empty
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func usage(err error, next string) error { return &failure{code: exitUsage, next: next, err: err} }

// run parses the arguments, runs the command and returns the exit code.
func run(p *process, args []string) int {
	var grammar cli
	exited := -1
	parser, err := kong.New(&grammar, options(p, func(code int) { exited = code; panic(stopParsing{}) })...)
	if err != nil {
		return report(p, fmt.Errorf("command line: %w", err))
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	ctx, err := parse(parser, args)
	if exited >= 0 {
		return exited
	}
	if err != nil {
		return report(p, usage(errors.New(config.Redact(err.Error())), "postrider "+commandOf(parser, args)+"--help shows what there is"))
	}
	ctx.BindTo(context.Background(), (*context.Context)(nil))
	return report(p, ctx.Run(p))
}

type stopParsing struct{}

// parse stops where the parser wants to exit, as after --help.
func parse(parser *kong.Kong, args []string) (ctx *kong.Context, err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(stopParsing); !ok {
				panic(r)
			}
		}
	}()
	return parser.Parse(args)
}

// commandOf is the command that was being typed, for a hint.
func commandOf(parser *kong.Kong, args []string) string {
	command, node := "", parser.Model.Node
	for _, arg := range args {
		i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Type == kong.CommandNode && n.Name == arg })
		if i < 0 {
			break
		}
		node = node.Children[i]
		command += arg + " "
	}
	return command
}

// report tells a person what went wrong and returns the exit code.
func report(p *process, err error) int {
	if err == nil {
		return exitWell
	}
	code, next := exitFinding, ""
	if f, ok := errors.AsType[*failure](err); ok {
		code, next = f.code, f.next
	} else if _, ok := errors.AsType[*config.Error](err); ok {
		code = exitUsage
	}
	if said, ok := errors.AsType[*alreadySaid](err); ok && said != nil {
		return code
	}
	fmt.Fprintf(p.Stderr, "postrider: %s\n", oneText(err))
	if next != "" {
		fmt.Fprintf(p.Stderr, "  %s\n", next)
	}
	return code
}

// alreadySaid marks an error that was logged, or whose finding was printed.
type alreadySaid struct{ error }

func (a *alreadySaid) Unwrap() error { return a.error }

// oneText is the error's text without credentials. Problems with the settings
// keep their lines; other errors are made one line.
func oneText(err error) string {
	if bad, ok := errors.AsType[*config.Error](err); ok {
		return bad.Error()
	}
	return config.Redact(strings.Join(strings.Fields(err.Error()), " "))
}
