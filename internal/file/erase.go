package file

import (
	"context"
	"fmt"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// DeletePrivate deletes every file that is the user's alone, and says how many. What is open to the app stays.
func (s *Service) DeletePrivate(ctx context.Context, c tenant.Caller) (n int, err error) {
	for after := ""; ; {
		ids, err := selectPrivate(ctx, s.DB.Read(), c, after, sweepBatch)
		if err != nil {
			return n, fmt.Errorf("delete files of a user: %w", err)
		}
		for _, id := range ids {
			err := s.Delete(ctx, c, ID(id))
			switch {
			case err == nil:
				n++
			case wire.AsError(err).Type != wire.TypeNotFound: // deleted or swept since it was read
				return n, err
			}
		}
		if len(ids) < sweepBatch {
			return n, nil
		}
		after = ids[len(ids)-1]
	}
}
