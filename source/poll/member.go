package poll

import (
	"context"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/pgstore"
)

var _ relay.Sharer = (*Store)(nil)

// Look puts the relay on the roster, as relay.Sharer says.
func (s *Store) Look(ctx context.Context, self relay.Member, ttl time.Duration) (relay.Roster, error) {
	return pgstore.Look(ctx, s.cfg.Pool, s.cfg.Schema, self, ttl)
}

// Leave takes the relay off the roster, as relay.Sharer says.
func (s *Store) Leave(ctx context.Context, owner string) error {
	return pgstore.Leave(ctx, s.cfg.Pool, s.cfg.Schema, owner)
}
