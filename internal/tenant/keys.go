package tenant

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// CreateKey makes an API key. The second result is the secret, which is not stored and shown this once.
func (s *Service) CreateKey(ctx context.Context, n NewKey) (*Key, string, error) {
	if err := n.Validate(); err != nil {
		return nil, "", err
	}
	kind, prefix := kindAPI, keyPrefix
	if n.Role != "" {
		kind, prefix = kindAdmin, adminPrefix
	}
	secret, now := newSecret(prefix), s.now()
	row := &keyRow{
		ID: wire.NewID("key"), Kind: kind, Role: n.Role, Name: n.Name, Scopes: strings.Join(n.Scopes, " "),
		Hash: hashSecret(secret), Hint: hint(secret), CreatedAt: now.UnixMicro(),
	}
	if n.TTL > 0 {
		at := now.Add(n.TTL).UnixMicro()
		row.ExpiresAt = &at
	}
	err := s.DB.RunTx(ctx, func(ctx context.Context, tx db.Tx) error {
		if n.Role != "" {
			return insertKey(ctx, tx, row)
		}
		app, err := selectApp(ctx, tx, n.App)
		if err != nil {
			return err
		}
		if app.DisabledAt != nil {
			return wire.Invalid("app: the app is disabled.")
		}
		if err := s.checkSecondApp(ctx, tx, app.ID, false); err != nil {
			return err
		}
		row.AppID = &app.ID
		return insertKey(ctx, tx, row)
	})
	if errors.Is(err, db.ErrNotFound) {
		return nil, "", wire.Invalid("app: there is no such app.")
	}
	if err != nil {
		return nil, "", fmt.Errorf("create key: %w", err)
	}
	return row.key(), secret, nil
}

// checkSecondApp asks MayAddApp when the app would become the second one that anybody can use. With
// enabling it asks only if the app has live keys or tokens of its own.
func (s *Service) checkSecondApp(ctx context.Context, tx db.Tx, app string, enabling bool) error {
	if s.MayAddApp == nil {
		return nil
	}
	// Two apps that get their first key at the same moment must see each other.
	if err := lockOldestApp(ctx, s.DB, tx); err != nil {
		return err
	}
	own, others, err := countUsedApps(ctx, tx, app, s.now().UnixMicro())
	if err != nil {
		return err
	}
	if others == 0 || (own > 0) != enabling {
		return nil
	}
	if err := s.MayAddApp(); err != nil {
		return wire.Invalid("%s", err)
	}
	return nil
}

// AppsWithKeys counts the apps in use that have a live key or a token.
func (s *Service) AppsWithKeys(ctx context.Context) (int, error) {
	_, n, err := countUsedApps(ctx, s.DB.Read(), "", s.now().UnixMicro())
	if err != nil {
		return 0, fmt.Errorf("count apps with keys: %w", err)
	}
	return n, nil
}

// ListKeys gives API keys, newest first, of one app (id or name) or of all ("").
func (s *Service) ListKeys(ctx context.Context, app string, limit int, page string) ([]*Key, string, error) {
	if app != "" {
		a, err := s.GetApp(ctx, app)
		if err != nil {
			return nil, "", err
		}
		app = a.ID
	}
	return s.listKeys(ctx, kindAPI, app, limit, page)
}

// ListAdminKeys gives the keys for administration, newest first.
func (s *Service) ListAdminKeys(ctx context.Context, limit int, page string) ([]*Key, string, error) {
	return s.listKeys(ctx, kindAdmin, "", limit, page)
}

func (s *Service) listKeys(ctx context.Context, kind, app string, limit int, page string) ([]*Key, string, error) {
	filter := "keys " + app
	if kind == kindAdmin {
		filter = "admin keys"
	}
	at, err := s.position(filter, page)
	if err != nil {
		return nil, "", err
	}
	rows, err := selectKeys(ctx, s.DB.Read(), kind, app, at, limit+1)
	if err != nil {
		return nil, "", fmt.Errorf("list keys: %w", err)
	}
	next := ""
	if len(rows) > limit {
		rows = rows[:limit]
		last := rows[limit-1]
		if next, err = wire.EncodeCursor(s.CursorKey, filter, last.CreatedAt, last.ID); err != nil {
			return nil, "", fmt.Errorf("list keys: %w", err)
		}
	}
	keys := make([]*Key, len(rows))
	for i, r := range rows {
		keys[i] = r.key()
	}
	return keys, next, nil
}

// RevokeKey ends a key, given its id or itself: the next request with it is a 401. What it has begun goes on. It may be repeated.
// Only who may, ends admin keys.
func (s *Service) RevokeKey(ctx context.Context, idOrSecret string, mayAdmin bool) (*Key, error) {
	if !storable(idOrSecret) {
		return nil, noKey()
	}
	find := func(ctx context.Context, tx db.Tx) (*keyRow, error) { return selectKey(ctx, tx, idOrSecret) }
	if strings.HasPrefix(idOrSecret, keyPrefix) {
		find = func(ctx context.Context, tx db.Tx) (*keyRow, error) {
			return selectKeyByHash(ctx, tx, hashSecret(idOrSecret))
		}
	}
	var row *keyRow
	err := s.DB.RunDelete(ctx, func(ctx context.Context, tx db.Tx) error {
		var err error
		if row, err = find(ctx, tx); err != nil {
			return err
		}
		if row.Kind == kindAdmin && !mayAdmin {
			return wire.Forbidden("Admin keys are revoked with the role admin.")
		}
		return revokeKey(ctx, tx, row.ID, s.now().UnixMicro())
	})
	if errors.Is(err, db.ErrNotFound) {
		return nil, noKey()
	}
	if err != nil {
		return nil, fmt.Errorf("revoke key: %w", err)
	}
	return row.key(), nil
}

// Sweep removes keys that expired long ago, those of single commands when they have expired, what is kept of tokens and
// signing keys that nothing verifies any more, users of whom nothing is left to know, and what deleted users still have.
func (s *Service) Sweep(ctx context.Context) error {
	now := s.now()
	err := s.DB.RunDelete(ctx, func(ctx context.Context, tx db.Tx) error {
		return errors.Join(deleteEndedKeys(ctx, tx, now.Add(-endedKeys).UnixMicro()),
			deleteShortKeys(ctx, tx, now.UnixMicro(), sessionKeys.Microseconds()),
			deleteRevoked(ctx, tx, now.UnixMicro()), deleteSigningKeys(ctx, tx, now.Add(-endedKeys).UnixMicro()))
	})
	if err != nil {
		return fmt.Errorf("sweep keys: %w", err)
	}
	return errors.Join(s.sweepErasing(ctx), s.sweepUsers(ctx))
}

// EnsureAdminKey gives the admin key in the file at path and makes file and key if there is none, or if
// the key in it was revoked. Deleting the file and starting again is therefore how the key is changed:
// earlier keys of the same file end when a new one is made.
func (s *Service) EnsureAdminKey(ctx context.Context, path string) (string, error) {
	secret, err := readAdminKey(path)
	if err != nil {
		return "", err
	}
	name, err := adminKeyName(path)
	if err != nil {
		return "", err
	}
	now := s.now().UnixMicro()
	fresh := newSecret(adminPrefix)
	err = s.DB.RunTx(ctx, func(ctx context.Context, tx db.Tx) error {
		if secret != "" {
			row, err := selectKeyByHash(ctx, tx, hashSecret(secret))
			if err == nil && row.RevokedAt == nil {
				return nil
			}
			if err != nil && !errors.Is(err, db.ErrNotFound) {
				return err
			}
			if err == nil {
				secret = ""
			}
		}
		if secret == "" {
			secret = fresh
			if err := revokeAdminKeys(ctx, tx, name, now); err != nil {
				return err
			}
		}
		if err := insertKey(ctx, tx, &keyRow{
			ID: wire.NewID("key"), Kind: kindAdmin, Role: RoleAdmin, Name: name,
			Hash: hashSecret(secret), Hint: hint(secret), CreatedAt: now,
		}); err != nil {
			return err
		}
		if secret != fresh {
			return nil
		}
		// Before the commit: a row without its file could never be used, and the file without its row
		// is taken up at the next start.
		return renameio.WriteFile(path, []byte(secret+"\n"), 0o600, renameio.WithStaticPermissions(0o600))
	})
	if err != nil {
		return "", fmt.Errorf("make admin key: %w", err)
	}
	return secret, nil
}

func readAdminKey(path string) (string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read admin key: %w", err)
	}
	secret := strings.TrimSpace(string(b))
	if !strings.HasPrefix(secret, adminPrefix) || len(secret) != len(newSecret(adminPrefix)) {
		return "", fmt.Errorf("read admin key: %s does not hold one; delete it to get a new key", path)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return "", fmt.Errorf("protect admin key: %w", err)
	}
	return secret, nil
}

// adminKeyName tells the key files of several servers on one database apart without naming their paths.
func adminKeyName(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("make admin key: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("make admin key: %w", err)
	}
	sum := sha256.Sum256([]byte(host + "\x00" + abs))
	return "admin key file " + hex.EncodeToString(sum[:4]), nil
}
