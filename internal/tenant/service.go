package tenant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

const (
	// endedKeys is how long a key that expired stays in the lists.
	endedKeys = 30 * 24 * time.Hour
	// sessionKeys is the longest life of a key that goes as soon as it has expired: each client command
	// makes one for itself, and nobody asks for them again.
	sessionKeys = time.Hour
)

// Service keeps apps and keys. It is safe for concurrent use.
type Service struct {
	DB *db.DB
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// CursorKey signs list pages.
	CursorKey wire.CursorKey
	// MayAddApp is asked before a second app gets its first key. The text of its error is answered as a
	// 400. nil allows it.
	MayAddApp func() error
}

func (s *Service) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// CreateApp makes an app. A name that is taken is a conflict.
func (s *Service) CreateApp(ctx context.Context, name string) (*App, error) {
	if err := checkAppName(name); err != nil {
		return nil, err
	}
	row := &appRow{ID: wire.NewID("app"), Name: name, CreatedAt: s.now().UnixMicro()}
	err := s.DB.RunTx(ctx, func(ctx context.Context, tx db.Tx) error { return insertApp(ctx, tx, row) })
	if db.IsUnique(err) {
		return nil, wire.Conflict("name: there is already an app with this name.")
	}
	if err != nil {
		return nil, fmt.Errorf("create app: %w", err)
	}
	return row.app(), nil
}

// EnsureDefaultApp gives the app named default and makes it in an empty database.
func (s *Service) EnsureDefaultApp(ctx context.Context) (*App, error) {
	app, err := s.GetApp(ctx, DefaultApp)
	if err == nil {
		return app, nil
	}
	if !isNotFound(err) {
		return nil, err
	}
	app, err = s.CreateApp(ctx, DefaultApp)
	var we *wire.Error
	if errors.As(err, &we) && we.Type == wire.TypeConflict {
		// Another server on the same database was faster.
		return s.GetApp(ctx, DefaultApp)
	}
	return app, err
}

func isNotFound(err error) bool {
	var we *wire.Error
	return errors.As(err, &we) && we.Type == wire.TypeNotFound
}

func noApp() error { return &wire.Error{Type: wire.TypeNotFound, Message: "There is no such app."} }
func noKey() error { return &wire.Error{Type: wire.TypeNotFound, Message: "There is no such key."} }

// GetApp finds an app by id or name.
func (s *Service) GetApp(ctx context.Context, idOrName string) (*App, error) {
	if !storable(idOrName) {
		return nil, noApp()
	}
	row, err := selectApp(ctx, s.DB.Read(), idOrName)
	if errors.Is(err, db.ErrNotFound) {
		return nil, noApp()
	}
	if err != nil {
		return nil, fmt.Errorf("get app: %w", err)
	}
	return row.app(), nil
}

// DisableApp shuts an app off: from the next request on its keys answer 401, and what runs goes on. It may be repeated.
func (s *Service) DisableApp(ctx context.Context, idOrName string) (*App, error) {
	now := s.now().UnixMicro()
	return s.setDisabled(ctx, idOrName, &now)
}

// EnableApp undoes DisableApp.
func (s *Service) EnableApp(ctx context.Context, idOrName string) (*App, error) {
	return s.setDisabled(ctx, idOrName, nil)
}

func (s *Service) setDisabled(ctx context.Context, idOrName string, at *int64) (*App, error) {
	if !storable(idOrName) {
		return nil, noApp()
	}
	var row *appRow
	err := s.DB.RunDelete(ctx, func(ctx context.Context, tx db.Tx) error {
		var err error
		if row, err = selectApp(ctx, tx, idOrName); err != nil {
			return err
		}
		if (row.DisabledAt == nil) == (at == nil) {
			return nil
		}
		if at == nil {
			if err := s.checkSecondApp(ctx, tx, row.ID, true); err != nil {
				return err
			}
		}
		row.DisabledAt = at
		return updateDisabled(ctx, tx, row)
	})
	if errors.Is(err, db.ErrNotFound) {
		return nil, noApp()
	}
	if err != nil {
		return nil, fmt.Errorf("update app: %w", err)
	}
	return row.app(), nil
}

// ListApps gives apps, newest first, and the cursor of the next page or "".
func (s *Service) ListApps(ctx context.Context, limit int, page string) ([]*App, string, error) {
	at, err := s.position("apps", page)
	if err != nil {
		return nil, "", err
	}
	rows, err := selectApps(ctx, s.DB.Read(), at, limit+1)
	if err != nil {
		return nil, "", fmt.Errorf("list apps: %w", err)
	}
	next := ""
	if len(rows) > limit {
		rows = rows[:limit]
		last := rows[limit-1]
		if next, err = wire.EncodeCursor(s.CursorKey, "apps", last.CreatedAt, last.ID); err != nil {
			return nil, "", fmt.Errorf("list apps: %w", err)
		}
	}
	apps := make([]*App, len(rows))
	for i, r := range rows {
		apps[i] = r.app()
	}
	return apps, next, nil
}

// position decodes a list cursor; "" is the beginning.
func (s *Service) position(filter, page string) (*position, error) {
	if page == "" {
		return nil, nil // no position is the beginning
	}
	var at position
	if err := wire.DecodeCursor(s.CursorKey, filter, page, &at.createdAt, &at.id); err != nil {
		return nil, err
	}
	return &at, nil
}
