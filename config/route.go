package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// DefaultRoute is the name of the route that --to makes.
const DefaultRoute = "default"

var routeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// routes reads the routes of the file, or makes one of --to.
func (l *loader) routes(c *Config, leaseAt value) {
	to, short := l.flag("to")
	if !short {
		to, short = l.variable("to")
	}
	switch {
	case short && l.list != nil:
		l.problems.add(to.at, "", "makes a route of its own, but "+l.name+":"+strconv.Itoa(l.list.Line)+" has routes",
			"drop one of the two, or name another file with --config")
	case short:
		rt := newRoute(to.at.String(), c.Lease)
		rt.Name, rt.Topics, rt.To = DefaultRoute, []string{"**"}, l.destination(to)
		c.Routes = []Route{rt}
	case l.list != nil:
		l.tree.sequence(l.list, "routes", "routes that start with \"- name: …\"", func(n *yaml.Node, setting string) {
			c.Routes = append(c.Routes, l.route(n, setting, c.Lease, leaseAt))
		})
	case l.in.Routes && !l.unread:
		l.problems.add(origin{}, "", "no route is named", "use --to "+destinationForms+" for all topics, or write routes in "+DefaultFile)
	}
}

func newRoute(at string, lease time.Duration) Route {
	return Route{
		Start: string(relay.StartBeginning), Order: string(relay.OrderKey), Encoding: "raw", OnFailure: string(relay.Release),
		Retry: Retry{
			MaxAttempts: relay.DefaultMaxAttempts, Initial: relay.DefaultRetryInitial, Factor: relay.DefaultRetryFactor,
			Max: relay.DefaultRetryMax, Jitter: relay.DefaultRetryJitter,
		},
		Concurrency: relay.DefaultConcurrency, PublishTimeout: lease / 2, At: at,
	}
}

// longestTimeout is the longest time-out of a publish that the relay takes:
// nothing may still be on its way when the lease ends, because another relay
// may be publishing by then.
func longestTimeout(lease time.Duration) time.Duration { return lease - min(lease/10, time.Second) }

func (l *loader) route(n *yaml.Node, setting string, lease time.Duration, leaseAt value) Route {
	f := l.tree
	rt := newRoute(f.at(n).String(), lease)
	seen := make(map[string]value)
	set := func(key string, read func(value)) field {
		return field{key: key, scalar: func(v value) { seen[key] = v; read(v) }}
	}
	topics := false
	retry := []field{
		set("max_attempts", func(v value) { rt.Retry.MaxAttempts = l.int(v, relay.DefaultMaxAttempts, 1, 1_000_000) }),
		set("initial", func(v value) {
			rt.Retry.Initial = l.duration(v, relay.DefaultRetryInitial, time.Millisecond, 24*time.Hour)
		}),
		set("factor", func(v value) { rt.Retry.Factor = l.float(v, relay.DefaultRetryFactor, 1, 100) }),
		set("max", func(v value) { rt.Retry.Max = l.duration(v, relay.DefaultRetryMax, time.Millisecond, 7*24*time.Hour) }),
		set("jitter", func(v value) { rt.Retry.Jitter = l.float(v, relay.DefaultRetryJitter, 0, 1) }),
	}
	f.mapping(n, setting, []field{
		set("name", func(v value) { rt.Name = l.routeName(v) }),
		{key: "topics", node: func(n *yaml.Node, setting string) {
			topics = true
			f.sequence(n, setting, `a list such as [orders, "billing.*"], or ["**"] for every topic`, func(n *yaml.Node, setting string) {
				rt.Topics = append(rt.Topics, l.topic(f.scalar(n, setting)))
			})
		}},
		set("to", func(v value) { rt.To = l.destination(v) }),
		set("start", func(v value) { rt.Start = l.choice(v, rt.Start, "beginning", "now") }),
		set("order", func(v value) { rt.Order = l.choice(v, rt.Order, "key", "none") }),
		set("encoding", func(v value) { rt.Encoding = l.choice(v, rt.Encoding, "raw", "base64") }),
		{key: "retry", node: func(n *yaml.Node, setting string) { f.mapping(n, setting, retry) }},
		set("on_failure", func(v value) { rt.OnFailure = l.choice(v, rt.OnFailure, "release", "hold") }),
		set("rate", func(v value) { rt.Rate = l.float(v, 0, 0, 1e9) }),
		set("concurrency", func(v value) { rt.Concurrency = l.int(v, relay.DefaultConcurrency, 1, 1024) }),
		set("publish_timeout", func(v value) {
			rt.PublishTimeout = l.duration(v, rt.PublishTimeout, 10*time.Millisecond, MaxLease)
		}),
	})
	if resolve(n).Kind != yaml.MappingNode {
		return rt // reported; what it lacks is no news
	}
	at := f.at(n)
	if _, ok := seen["name"]; !ok {
		l.problems.add(at, setting, "has no name", "write \"name: orders\"; it must stay the same, because the route's position in the log belongs to it")
	}
	if !topics {
		l.problems.add(at, setting, "has no topics", "write \"topics: [orders]\", or [\"**\"] for every topic")
	}
	if _, ok := seen["to"]; !ok {
		l.problems.add(at, setting, "does not say where to send to", "write \"to: sqs://QUEUE\" or \"to: sns://TOPIC\"")
	}
	if v, ok := seen["max"]; ok && rt.Retry.Max < rt.Retry.Initial {
		l.bad(v, "is shorter than initial ("+short(rt.Retry.Initial)+")", "make max the longest wait, initial the first")
	}
	if _, ok := seen["max"]; !ok {
		rt.Retry.Max = max(rt.Retry.Max, rt.Retry.Initial)
	}
	if v, ok := seen["publish_timeout"]; ok && rt.PublishTimeout > longestTimeout(lease) {
		where := "the default"
		if leaseAt.at != (origin{}) {
			where = "from " + leaseAt.at.String()
		}
		l.bad(v, fmt.Sprintf("is too long for a lease of %s (%s): another relay could take over while this one still publishes", short(lease), where),
			fmt.Sprintf("use at most %s, or a lease of at least %s", short(longestTimeout(lease)), short(rt.PublishTimeout+min(rt.PublishTimeout/9+time.Millisecond, time.Second))))
	}
	return rt
}

// routeName also sees to it that no name stands twice.
func (l *loader) routeName(v value) string {
	name := l.str(v, "", "a name such as orders")
	if name == "" {
		return ""
	}
	if !routeName.MatchString(name) {
		l.bad(v, quote(v.shown)+" is not a name", "use up to 63 letters, digits, _, . and -, starting with a letter or digit")
	}
	if before, ok := l.names[name]; ok {
		l.bad(v, quote(v.shown)+" is the name of the route at "+before.String()+" too", "give each route a name of its own: its position in the log belongs to the name")
	} else {
		l.names[name] = v.at
	}
	return name
}

func (l *loader) destination(v value) Destination {
	text := l.str(v, "", destinationForms)
	if text == "" {
		return Destination{}
	}
	d, what, mend := parseDestination(text)
	if what != "" {
		l.bad(v, what, mend)
	}
	return d
}

func (l *loader) topic(v value) string {
	t := l.str(v, "", `a topic such as orders, or a pattern such as "billing.*"`)
	const patterns = "* stands for anything within one part, ** for any rest"
	switch {
	case t == "":
		return t
	case len(t) > outbox.MaxTopic:
		l.bad(v, fmt.Sprintf("has more than %d bytes: no topic is that long", outbox.MaxTopic), "write a shorter pattern")
	case !utf8.ValidString(t) || strings.ContainsRune(t, 0):
		l.bad(v, "is not valid text", "write a topic's name")
	case strings.TrimSpace(t) != t:
		l.bad(v, quote(v.shown)+" begins or ends with a space", "remove it")
	case strings.Contains(t, "***"):
		l.bad(v, quote(v.shown)+" has three stars in a row", patterns)
	case strings.HasPrefix(t, "^"):
		l.bad(v, quote(v.shown)+" looks like a regular expression", "patterns are simpler: "+patterns)
	case strings.HasSuffix(t, ".#") || strings.HasSuffix(t, ".>") || t == "#" || t == ">":
		l.bad(v, quote(v.shown)+" is another system's pattern", patterns)
	default:
		if _, err := relay.Matcher([]string{t}); err != nil {
			l.bad(v, quote(v.shown)+" is not a pattern", patterns)
		}
	}
	return t
}
