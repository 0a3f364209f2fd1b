package main

import (
	"io"
	"log/slog"

	"github.com/postrider/postrider/config"
)

// newLogger writes to w. Whatever text or error passes through it loses its
// credentials: libraries put URLs into their errors.
func newLogger(w io.Writer, c config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: redact}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

func redact(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(config.Redact(a.Value.String()))
	case slog.KindDuration: // JSON would have nanoseconds
		a.Value = slog.StringValue(a.Value.Duration().String())
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(oneText(err))
		}
	}
	return a
}
