package tenant

import "time"

// App is a tenant application.
type App struct {
	ID        string
	Name      string
	CreatedAt time.Time
	// DisabledAt is when the app was shut off; nil while it is in use.
	DisabledAt *time.Time
}

// Key is an API key without its secret.
type Key struct {
	ID     string
	AppID  string
	Name   string
	Scopes []string
	// Hint is the end of the secret, so that a person can tell keys apart.
	Hint      string
	CreatedAt time.Time
	ExpiresAt *time.Time
	RevokedAt *time.Time
}

// Kind is the set of credentials a route takes.
type Kind uint8

// The kinds. KindNone is the zero value.
const (
	KindNone   Kind = 0
	KindAPIKey Kind = 1 << (iota - 1)
	KindAdmin
)
