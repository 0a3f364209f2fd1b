// Command bench measures this project and its peers on one PostgreSQL server of
// its own, in turns, and prints a Markdown document:
//
//	go run ./bench                            # all sections, about 25 minutes
//	go run ./bench drain --n 200000 --rounds 3
//	go run ./bench drain --contenders select,postrider
//
// Each contender runs as a process of its own, so that its memory and processor
// time are its own. Progress goes to the standard error. Nothing is asserted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/postrider/postrider/bench/contender"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) > 0 && args[0] == runOneCommand {
		return runOne(ctx, stdin, stdout)
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	return measure(ctx, o, stdout)
}

// options of a whole run.
type options struct {
	sections    []section
	n           int           // messages of a drain
	depths      []int         // messages of a drain whose depth is compared
	sent        int           // published rows
	connections []int         // of producers
	rate        int           // messages per second whose latency is measured
	span        time.Duration // how long producers and latency are measured
	idle        time.Duration // how long an idle contender is measured
	rounds      int           // how often each contender runs
	limit       time.Duration // after which a run of a slow contender is cut off
	verify      bool          // that all messages come, and in order
	contenders  []string      // ids; empty: those of the section
	settings    map[string]string
}

func parse(args []string) (options, error) {
	o := options{settings: map[string]string{}}
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		i := slices.IndexFunc(sections, func(s section) bool { return s.name == args[0] })
		if i < 0 {
			return o, fmt.Errorf("no section is called %q; there are %s", args[0], sectionNames())
		}
		o.sections, args = append(o.sections, sections[i]), args[1:]
	}
	if len(o.sections) == 0 {
		o.sections = sections
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&o.n, "n", 200_000, "messages of a drain")
	flags.IntVar(&o.rounds, "rounds", 3, "how often each contender runs")
	numbers(flags, &o.depths, "depths", "5000,50000,500000", "`numbers` of messages of a drain in section depth")
	numbers(flags, &o.connections, "connections", "1,8,32", "`numbers` of connections in section producers")
	flags.IntVar(&o.sent, "sent", 5_000_000, "published rows in section sent")
	flags.IntVar(&o.rate, "rate", 2000, "messages per second in section latency")
	flags.DurationVar(&o.span, "span", 3*time.Second, "how long producers and latency are measured")
	flags.DurationVar(&o.idle, "idle", 8*time.Second, "how long an idle contender is measured")
	flags.BoolVar(&o.verify, "verify", false, "fail when not all messages come, or one overtakes another of its key where the contender promises an order")
	flags.DurationVar(&o.limit, "limit", 5*time.Second, "after which a slow contender's run is cut off")
	contenders := flags.String("contenders", "", "only these contenders, by `ids` with commas between")
	flags.Func("set", "a `name=value` of the server's settings; may be repeated", func(text string) error {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("%q is not written name=value", text)
		}
		o.settings[name] = value
		return nil
	})
	flags.SetOutput(io.Discard) // main says what is wrong
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "bench [section...] [flags]\nsections: %s\n", sectionNames())
		flags.SetOutput(os.Stderr)
		flags.PrintDefaults()
		return o, err
	} else if err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q: sections come before flags", flags.Arg(0))
	}
	if o.n <= 0 || o.sent <= 0 || o.rate <= 0 || o.rounds <= 0 || o.span <= 0 || o.idle <= 0 || o.limit <= 0 {
		return o, errors.New("numbers and times must be positive")
	}
	if *contenders != "" {
		o.contenders = strings.Split(*contenders, ",")
		for _, id := range o.contenders {
			if _, err := contender.Find(id); err != nil {
				return o, err
			}
		}
	}
	return o, nil
}

// numbers adds a flag for positive numbers with commas between.
func numbers(flags *flag.FlagSet, to *[]int, name, standard, usage string) {
	set := func(text string) error {
		*to = nil
		for part := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(part)
			if err != nil || n <= 0 {
				return fmt.Errorf("%q is no positive number", part)
			}
			*to = append(*to, n)
		}
		return nil
	}
	if err := set(standard); err != nil {
		panic(err) // it is written above
	}
	flags.Func(name, usage+", with commas between; default "+standard, set)
}

// section is one question and its tables.
type section struct {
	name string
	run  func(b *bench, ctx context.Context) error
}

var sections = []section{
	{"drain", (*bench).drainSection},
	{"slow", (*bench).slowSection},
	{"depth", (*bench).depthSection},
	{"sent", (*bench).sentSection},
	{"held", (*bench).heldSection},
	{"relays", (*bench).relaysSection},
	{"producers", (*bench).producersSection},
	{"latency", (*bench).latencySection},
	{"idle", (*bench).idleSection},
	{"retention", (*bench).retentionSection},
}

func sectionNames() string {
	names := make([]string, len(sections))
	for i, s := range sections {
		names[i] = s.name
	}
	return strings.Join(names, ", ")
}
