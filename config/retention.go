package config

import (
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
)

// keepForever is what stands for a time that never ends.
const keepForever = "keep"

// maxRetention is longer than anybody keeps anything, and fits an interval in
// microseconds.
const maxRetention = 100 * 365 * 24 * time.Hour

// retention reads how long messages are kept. "0s" is as soon as nobody needs
// them, which the relay knows as the shortest duration.
func (l *loader) retention() relay.Retention {
	keep := relay.Retention{Sent: l.kept("retention.sent", relay.DefaultRetentionSent), Failed: l.kept("retention.failed", relay.Keep)}
	if v, ok := l.pick("retention.failed"); ok && keep.Sent == relay.Keep && keep.Failed != relay.Keep {
		l.bad(v, "deletes nothing while retention.sent is keep: a failed message stays as long as it is in the log", "give retention.sent a duration, or leave this out")
	}
	return keep
}

func (l *loader) kept(key string, fallback time.Duration) time.Duration {
	v, ok := l.pick(key)
	switch {
	case !ok:
		return fallback
	case v.text == keepForever:
		return relay.Keep
	case v.text != "" && strings.Trim(v.text[:1], "0123456789") != "":
		l.bad(v, quote(v.shown)+" is neither a duration nor "+keepForever, "use a duration such as 24h, 0s for no longer than needed, or "+keepForever)
		return fallback
	}
	return max(l.duration(v, relay.DefaultRetentionSent, 0, maxRetention), time.Nanosecond)
}
