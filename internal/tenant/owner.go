package tenant

// Scope says who may use a resource inside its app.
type Scope string

// The scopes. Neither crosses an app.
const (
	// ScopeUser lets in the one user (or the app's owner) who made the resource.
	ScopeUser Scope = "user"
	// ScopeApp lets in every caller of the app.
	ScopeApp Scope = "app"
)

// Owner is stored on every owned row, in the columns owner_app, owner_user and owner_scope. Embed it in
// a bun model with the tag `bun:",extend"`, or as an anonymous field.
type Owner struct {
	AppID string `bun:"owner_app"`
	// UserID is the JWT subject; "" is the app's owner.
	UserID string `bun:"owner_user"`
	Scope  Scope  `bun:"owner_scope"`
}

// Caller is who makes a request. Handlers get it as an argument, never from a context.
type Caller struct {
	AppID string
	// UserID is the JWT subject; "" is the app's owner, as whom an API key acts.
	UserID string
	// KeyID is the key the request came with, "" for none.
	KeyID string
	// Scope is the scope of what this request creates. It plays no part in reading.
	Scope Scope
	// Admin is set for the admin key. Such a caller belongs to no app and owns nothing.
	Admin bool
	Role  string
	// Scopes are the extra rights of the API key, such as tokens:mint.
	Scopes []string
}

// Owner is what the rows this request creates carry.
func (c Caller) Owner() Owner {
	scope := c.Scope
	if scope == "" {
		scope = ScopeUser
	}
	return Owner{AppID: c.AppID, UserID: c.UserID, Scope: scope}
}

// MayUse is the access rule: the same app, and either app scope or the same user. There is no override,
// neither for the app's owner nor for the admin.
func (c Caller) MayUse(o Owner) bool {
	if c.AppID == "" || o.AppID != c.AppID {
		return false
	}
	return o.Scope == ScopeApp || (o.Scope == ScopeUser && o.UserID == c.UserID)
}
