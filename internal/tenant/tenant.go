package tenant

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

// DefaultApp is the name of the app every database starts with.
const DefaultApp = "default"

// ScopeMintTokens lets an API key mint user tokens of its own app.
const ScopeMintTokens = "tokens:mint"

var knownScopes = []string{ScopeMintTokens}

// App is a tenant application.
type App struct {
	ID        string
	Name      string
	CreatedAt time.Time
	// DisabledAt is when the app was shut off; nil while it is in use.
	DisabledAt *time.Time
	// OwnerIssuer and OwnerSub are whose user tokens act as the app's owner, as its API keys do.
	OwnerIssuer, OwnerSub string
	// RequireTokenBinding refuses, on the gateway, tokens that do not name the app by app_id, or Origin in aud or azp.
	RequireTokenBinding bool
	// Origin is the address of the application itself, "" for none.
	Origin string
	// AllowedModels are patterns with '*' of the models the app may use; empty is all.
	AllowedModels []string
}

// Key is an API key, or a key for administration, without its secret.
type Key struct {
	ID string
	// AppID is "" and Role is set for an admin key.
	AppID  string
	Role   string
	Name   string
	Scopes []string
	// Hint is the end of the secret, so that a person can tell keys apart.
	Hint      string
	CreatedAt time.Time
	// ExpiresAt is when the key ends by itself; nil means never.
	ExpiresAt *time.Time
	RevokedAt *time.Time
}

// Kind is the set of credentials a route takes.
type Kind uint16

// The kinds. KindNone is a route without a credential.
const (
	// KindAPIKey is the key of an app.
	KindAPIKey Kind = 1 << iota
	// KindAdmin is an admin key of the role admin.
	KindAdmin
	// KindOperator is an admin key of the role operator, and of admin.
	KindOperator
	// KindAuditor is an admin key of any role.
	KindAuditor
	// KindUser is a user's token that is bound to an app, as Bearer or x-auth-token.
	KindUser
	// KindGateway is a user's token, with or without the identity of an app beside it.
	KindGateway
	// KindHuman is a user's token by itself, of no app's.
	KindHuman

	KindNone Kind = 0

	// Administration is every kind that an admin key can be of.
	Administration = KindAdmin | KindOperator | KindAuditor
)

// The roles of admin keys.
const (
	// RoleAdmin may do everything under /airlock/v1.
	RoleAdmin = "admin"
	// RoleOperator manages apps, their keys, tokens, users and limits, but neither other admin keys, issuers nor signing keys.
	RoleOperator = "operator"
	// RoleAuditor reads, but no secret.
	RoleAuditor = "auditor"
)

const (
	keyPrefix   = "sk-airlock-"
	adminPrefix = "sk-airlock-admin-"
	maxName     = 100
	maxKeyTTL   = 10 * 365 * 24 * time.Hour
	minKeyTTL   = time.Minute
)

// newSecret makes a key of 256 random bits. That many need no slow hash and no salt: there is nothing to
// guess and no two are equal.
func newSecret(prefix string) string {
	return prefix + wire.RandomText() + wire.RandomText()
}

func hashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func hint(secret string) string { return "…" + secret[len(secret)-4:] }

// storable says whether text can be asked for in a database. PostgreSQL refuses NUL and bad UTF-8 with an
// error that would look like our own fault.
func storable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

// checkName allows what can be typed on a command line and shown in a table.
func checkName(path, name string) error {
	if name == "" || utf8.RuneCountInString(name) > maxName {
		return wire.Invalid("%s: expected 1 to %d characters.", path, maxName)
	}
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !strings.ContainsRune(" ._-", r) {
			return wire.Invalid("%s: %q is not allowed; letters, digits, space, '.', '_' and '-' are.", path, r)
		}
	}
	if strings.TrimSpace(name) != name {
		return wire.Invalid("%s: begins or ends with a space.", path)
	}
	return nil
}

// checkAppName also keeps a name from looking like an id, because both are accepted in one place.
func checkAppName(name string) error {
	if strings.HasPrefix(name, "app_") {
		return wire.Invalid("name: must not begin with app_, as ids do.")
	}
	return checkName("name", name)
}

// NewKey describes a key to be made.
type NewKey struct {
	// App is an app's id or name.
	App string
	// Role makes a key for administration, of no app.
	Role string
	// Name is for people; "" is allowed.
	Name string
	// Scopes are extra rights; ScopeMintTokens is the only one.
	Scopes []string
	// TTL ends the key by itself; 0 means never.
	TTL time.Duration
}

// Validate checks everything that needs no database.
func (n NewKey) Validate() error {
	switch {
	case n.Role != "" && roleKinds[n.Role] == 0:
		return wire.Invalid("role: expected one of %s, %s, %s.", RoleAdmin, RoleOperator, RoleAuditor)
	case n.Role != "" && (n.App != "" || len(n.Scopes) > 0):
		return wire.Invalid("role: an admin key has neither app nor scopes.")
	case n.Role == "" && (n.App == "" || !storable(n.App)):
		return wire.Invalid("app: expected the id or name of an app.")
	}
	if n.Name != "" {
		if err := checkName("name", n.Name); err != nil {
			return err
		}
	}
	for i, s := range n.Scopes {
		if !slices.Contains(knownScopes, s) {
			return wire.Invalid("scopes.%d: unknown scope; allowed: %s.", i, strings.Join(knownScopes, ", "))
		}
		if slices.Contains(n.Scopes[:i], s) {
			return wire.Invalid("scopes.%d: given twice.", i)
		}
	}
	if n.TTL != 0 && (n.TTL < minKeyTTL || n.TTL > maxKeyTTL) {
		return wire.Invalid("ttl_seconds: expected an integer from %d to %d.",
			int64(minKeyTTL/time.Second), int64(maxKeyTTL/time.Second))
	}
	return nil
}
