package tenant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// DefaultOwner is the subject of our own tokens that stands for an app's owner unless another is registered.
const DefaultOwner = "owner"

// User is a subject that was seen in an app, or blocked.
type User struct {
	ID string
	// AppID is "" for the subject wherever it comes from.
	AppID           string
	Issuer, Subject string
	FirstSeen       time.Time
	// LastSeen is exact to a day.
	LastSeen  time.Time
	BlockedAt *time.Time
	// DeletedAt is when the administration deleted what is the user's.
	DeletedAt *time.Time
}

func noUser() error { return &wire.Error{Type: wire.TypeNotFound, Message: "There is no such user."} }

// UserQuery narrows a list of users; "" is all.
type UserQuery struct {
	// App is an id or a name.
	App string
	// User is <issuer id>/<subject>, or a subject of ours.
	User    string
	Blocked bool // only those who are
}

// ListUsers gives the subjects that were seen, the newest first, once for each app they were seen in.
func (s *Service) ListUsers(ctx context.Context, q UserQuery, limit int, page string) ([]*User, string, error) {
	f := userFilter{blocked: q.Blocked}
	if q.App != "" {
		a, err := s.GetApp(ctx, q.App)
		if err != nil {
			return nil, "", err
		}
		f.appID = a.ID
	}
	if q.User != "" {
		var err error
		if f.issuer, f.sub, err = splitUser(q.User); err != nil {
			return nil, "", err
		}
	}
	filter := fmt.Sprintf("users %+v", f)
	at, err := s.position(filter, page)
	if err != nil {
		return nil, "", err
	}
	rows, err := selectUsers(ctx, s.DB.Read(), f, at, limit+1)
	if err != nil {
		return nil, "", fmt.Errorf("list users: %w", err)
	}
	next := ""
	if len(rows) > limit {
		rows = rows[:limit]
		last := rows[limit-1]
		if next, err = wire.EncodeCursor(s.CursorKey, filter, last.FirstSeen, last.ID); err != nil {
			return nil, "", fmt.Errorf("list users: %w", err)
		}
	}
	users := make([]*User, len(rows))
	for i, r := range rows {
		users[i] = r.user()
	}
	return users, next, nil
}

// GetUser finds a user by its id, or by <issuer id>/<subject> in an app (id or name), "" = in every app.
func (s *Service) GetUser(ctx context.Context, user, app string) (*User, error) {
	f, err := s.findUser(ctx, user, app)
	if err != nil {
		return nil, err
	}
	row, err := selectUser(ctx, s.DB.Read(), f)
	if errors.Is(err, db.ErrNotFound) {
		return nil, noUser()
	}
	if err != nil {
		return nil, fmt.Errorf("get user: %w", err)
	}
	return row.user(), nil
}

func (s *Service) findUser(ctx context.Context, user, app string) (f userFilter, err error) {
	if strings.HasPrefix(user, "user_") && !strings.Contains(user, "/") && storable(user) {
		if app != "" {
			return f, wire.Invalid("app: the id of a user names its app already.")
		}
		f.id = user
		return f, nil
	}
	if f.issuer, f.sub, err = splitUser(user); err != nil {
		return f, err
	}
	if app != "" {
		a, err := s.GetApp(ctx, app)
		if err != nil {
			return f, err
		}
		f.appID = a.ID
	}
	return f, nil
}

// BlockUser refuses a user's tokens from the next request on, or lets them in again. Without an app it is the subject in
// every app, also in those where it was never seen. To block a user of an issuer that is not configured is a 400: it would
// block nobody.
func (s *Service) BlockUser(ctx context.Context, user, app string, blocked bool) (*User, error) {
	f, err := s.findUser(ctx, user, app)
	if err != nil {
		return nil, err
	}
	if blocked && f.id == "" {
		if err := s.checkIssuer(ctx, "user", f.issuer, f.issuer+"/"+f.sub); err != nil {
			return nil, err
		}
	}
	now := s.now().UnixMicro()
	var row *userRow
	err = s.DB.RunTx(ctx, func(ctx context.Context, tx db.Tx) error {
		var err error
		switch {
		case !blocked:
			err = unblockUser(ctx, tx, f)
		case f.id != "":
			err = blockUser(ctx, tx, f.id, now)
		default:
			err = insertBlocked(ctx, tx, &userRow{
				ID: wire.NewID("user"), AppID: f.appID, Issuer: f.issuer, Sub: f.sub, FirstSeen: now, LastSeen: now, BlockedAt: &now,
			})
		}
		if err != nil {
			return err
		}
		row, err = selectUser(ctx, tx, f)
		return err
	})
	if errors.Is(err, db.ErrNotFound) || errors.Is(err, db.ErrStale) {
		return nil, noUser()
	}
	if err != nil {
		return nil, fmt.Errorf("block user: %w", err)
	}
	return row.user(), nil
}

// checkIssuer refuses the id of an issuer whose tokens are not taken, and names those that are. user is what was given: a subject of
// our own with a '/' in it is read as an issuer and a subject.
func (s *Service) checkIssuer(ctx context.Context, path, id, user string) error {
	set, err := s.issuerSet(ctx)
	if err == nil && set.byID[id] == nil {
		s.issuers.forget() // it may have been added through another server a moment ago
		set, err = s.issuerSet(ctx)
	}
	if err != nil {
		return err
	}
	if set.byID[id] != nil {
		return nil
	}
	return wire.Invalid("%s: there is no issuer %s; configured are %s. A user of this server's own tokens is %s/%s.",
		path, id, strings.Join(slices.Sorted(maps.Keys(set.byID)), ", "), jwt.OwnIssuer, user)
}
