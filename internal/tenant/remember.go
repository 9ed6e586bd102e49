package tenant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// What is remembered of users, if nothing else is set.
const (
	DefaultKeepUsers = 30 * 24 * time.Hour
	DefaultMaxUsers  = 100_000
)

const (
	// seenAgain is how exact the time is at which a user was seen last: once in it a request writes.
	seenAgain = 24 * time.Hour
	// noted is what is counted of users that are written down.
	noted = "noted"
	// mayNote is how many users of an app and issuer one server writes down in a minute. Whoever is beyond is served all the
	// same and written down another time.
	mayNote = 600
	// usersEvery is between two looks for idle users, which read the index of all.
	usersEvery = time.Hour
	usersBatch = 500
	// allApps stands for every app where "" is the subject outside of any.
	allApps = "*"
	// eraseFor is how long what is a deleted user's is looked for: requests that began before, here and on other servers of
	// the database, may still make something.
	eraseFor = time.Hour
)

// noteUser remembers a subject at its first request in an app, and at the first one of a day. A failure, as of a full disk, is
// no failure of the request.
func (s *Service) noteUser(ctx context.Context, c Caller) {
	now := s.now()
	s.limiter.mu.Lock()
	full := s.limiter.take(counted{c.AppID, c.Issuer, noted}, mayNote, now).wait > 0
	s.limiter.mu.Unlock()
	if full {
		return
	}
	row := &userRow{ID: wire.NewID("user"), AppID: c.AppID, Issuer: c.Issuer, Sub: c.Subject, FirstSeen: now.UnixMicro(), LastSeen: now.UnixMicro()}
	err := s.DB.RunTx(ctx, func(ctx context.Context, tx db.Tx) error { return noteUser(ctx, tx, row) })
	if err != nil && s.Log != nil {
		s.Log.WarnContext(ctx, "a user could not be noted", "error", err)
	}
}

// sweepUsers forgets users who own nothing, are not blocked and were not seen for long, and of apps that have too many those
// who were not seen for longest.
func (s *Service) sweepUsers(ctx context.Context) error {
	s.sweep.Lock()
	defer s.sweep.Unlock()
	now := s.now()
	if since := now.Sub(s.sweep.users); since >= 0 && since < usersEvery {
		return nil
	}
	keep, most := s.KeepUsers, s.MaxUsers
	if keep == 0 {
		keep = DefaultKeepUsers
	}
	if most == 0 {
		most = DefaultMaxUsers
	}
	err := s.forgetUsers(ctx, allApps, now.Add(-keep).UnixMicro(), -1)
	if err == nil {
		err = s.thinUsers(ctx, most)
	}
	if err != nil {
		return fmt.Errorf("sweep users: %w", err)
	}
	s.sweep.users = now
	return nil
}

func (s *Service) thinUsers(ctx context.Context, most int) error {
	apps, err := selectCrowded(ctx, s.DB.Read(), most)
	if err != nil {
		return err
	}
	for _, a := range apps {
		if err := s.forgetUsers(ctx, a.AppID, forever, a.Users-most); err != nil {
			return err
		}
	}
	return nil
}

// forgetUsers removes idle users of an app that were not seen since a moment, the longest unseen first, at most so many; -1 is
// all.
func (s *Service) forgetUsers(ctx context.Context, app string, before int64, most int) error {
	for most != 0 {
		n := usersBatch
		if most > 0 {
			n = min(n, most)
		}
		rows, err := selectIdleUsers(ctx, s.DB.Read(), app, before, n)
		if err != nil {
			return err
		}
		if err := s.DB.RunDelete(ctx, func(ctx context.Context, tx db.Tx) error { return dropUsers(ctx, tx, rows) }); err != nil {
			return err
		}
		if len(rows) < n {
			return nil
		}
		if most > 0 {
			most -= n
		}
	}
	return nil
}

// Erased is what was deleted of a user.
type Erased struct {
	Files, Containers int
	// Finished says that nothing of his is left here and none of his requests runs.
	Finished bool
}

// DeleteUser blocks a user of an app for good and deletes what is his alone there: private files and containers. What is open
// to the app, and what was written down of him, stays. What his running requests still make goes too, in the background.
// The user is given with an error too once he is blocked.
func (s *Service) DeleteUser(ctx context.Context, user, app string) (*User, Erased, error) {
	row, err := s.toDelete(ctx, user, app)
	if err != nil {
		return nil, Erased{}, err
	}
	at := s.now().UnixMicro()
	row.BlockedAt, row.DeletedAt, row.Erasing = &at, &at, true
	err = s.DB.RunDelete(ctx, func(ctx context.Context, tx db.Tx) error {
		if err := insertDeleted(ctx, tx, row); err != nil {
			return err
		}
		row, err = selectUser(ctx, tx, userFilter{appID: row.AppID, issuer: row.Issuer, sub: row.Sub})
		return err
	})
	if err != nil {
		return nil, Erased{}, fmt.Errorf("delete user: %w", err)
	}
	gone, err := s.erase(ctx, row)
	return row.user(), gone, err
}

// toDelete finds a user of an app who may be deleted. One who was never seen may come some day.
func (s *Service) toDelete(ctx context.Context, user, app string) (*userRow, error) {
	f, err := s.findUser(ctx, user, app)
	if err != nil {
		return nil, err
	}
	row, err := selectUser(ctx, s.DB.Read(), f)
	switch {
	case err == nil:
	case !errors.Is(err, db.ErrNotFound):
		return nil, fmt.Errorf("delete user: %w", err)
	case f.id != "":
		return nil, noUser()
	default:
		if err := s.checkIssuer(ctx, "user", f.issuer, f.issuer+"/"+f.sub); err != nil {
			return nil, err
		}
		now := s.now().UnixMicro()
		row = &userRow{ID: wire.NewID("user"), AppID: f.appID, Issuer: f.issuer, Sub: f.sub, FirstSeen: now, LastSeen: now}
	}
	if row.AppID == "" {
		return nil, wire.Invalid("app: expected the app whose user is to be deleted.")
	}
	a, err := s.GetApp(ctx, row.AppID)
	if err != nil {
		return nil, err
	}
	if a.OwnerIssuer == row.Issuer && a.OwnerSub == row.Sub {
		return nil, wire.Invalid("user: it is the app's owner, whose things are the app's.")
	}
	return row, nil
}

func (s *Service) erase(ctx context.Context, row *userRow) (Erased, error) {
	if s.Erase == nil {
		return Erased{Finished: true}, nil
	}
	gone, err := s.Erase(ctx, Caller{
		AppID: row.AppID, UserID: row.Issuer + "/" + row.Sub, Issuer: row.Issuer, Subject: row.Sub, Scope: ScopeUser, AppProven: true,
	})
	if err != nil {
		return gone, fmt.Errorf("delete what is a user's: %w", err)
	}
	return gone, nil
}

// sweepErasing deletes what deleted users still have, until an hour has passed and nothing was found.
func (s *Service) sweepErasing(ctx context.Context) error {
	rows, err := selectErasing(ctx, s.DB.Read())
	if err != nil {
		return fmt.Errorf("sweep deleted users: %w", err)
	}
	var errs []error
	for _, r := range rows {
		gone, err := s.erase(ctx, r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !gone.Finished || gone.Files+gone.Containers > 0 || s.now().Sub(micros(*r.DeletedAt)) < eraseFor {
			continue
		}
		errs = append(errs, s.DB.RunDelete(ctx, func(ctx context.Context, tx db.Tx) error { return endErasing(ctx, tx, r) }))
	}
	return errors.Join(errs...)
}
