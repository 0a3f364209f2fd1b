package demo

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// hush is a slog.Handler that says nothing while hushed.
type hush struct {
	slog.Handler
	hushed *atomic.Bool
}

func (h hush) Enabled(ctx context.Context, level slog.Level) bool {
	return !h.hushed.Load() && h.Handler.Enabled(ctx, level)
}

func (h hush) WithAttrs(attrs []slog.Attr) slog.Handler {
	return hush{h.Handler.WithAttrs(attrs), h.hushed}
}

func (h hush) WithGroup(name string) slog.Handler { return hush{h.Handler.WithGroup(name), h.hushed} }
