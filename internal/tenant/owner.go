package tenant

import "strings"

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
	// UserID is <issuer id>/<subject> of a user's token; "" is the app's owner.
	UserID string `bun:"owner_user"`
	Scope  Scope  `bun:"owner_scope"`
}

// Caller is who makes a request. Handlers get it as an argument, never from a context.
type Caller struct {
	// AppID is "" for an admin, and on the gateway for who proved no app.
	AppID string
	// UserID is <issuer id>/<subject> of a user's token; "" is the app's owner: an API key, or a token of the registered owner.
	UserID string
	// Subject and Issuer are those of the token, also of the owner's; Issuer is the id of the issuer.
	Subject, Issuer string
	// KeyID is the key the request came with, "" for none.
	KeyID string
	// Scope is the scope of what this request creates. It plays no part in reading.
	Scope Scope
	// Admin is set for the admin key. Such a caller belongs to no app and owns nothing.
	Admin bool
	Role  string
	// Scopes are the extra rights of the API key, such as tokens:mint.
	Scopes []string
	// Gateway is set for who came by the gateway's prefix.
	Gateway bool
	// AppProven is set for an API key, a token bound to an app outside of the gateway, and an app identity that verified.
	AppProven bool
	// TokenScope is the claim scope, which tokens of people have not.
	TokenScope string
	// BoundTo is the claim app_id.
	BoundTo string
	// Exchanged is set for a token of ours that stands for one of another issuer.
	Exchanged bool
	// Unnoted says that the user is not remembered yet, or not for today. Admit sees to it.
	Unnoted bool
	// Models are the app's allowed models; empty is all.
	Models []string
	// Limits are what is set for the app and the user beside the defaults.
	Limits Limits
}

// RequireApp is a 401 unless the caller proved its app. Whatever touches files, containers or code asks it.
func (c Caller) RequireApp() error {
	if !c.AppProven {
		return errIdentityMissing()
	}
	return nil
}

// MayUseModel reports whether the app's list of models lets a model through.
func (c Caller) MayUseModel(model string) bool {
	if len(c.Models) == 0 {
		return true
	}
	for _, p := range c.Models {
		if matchModel(p, model) {
			return true
		}
	}
	return false
}

// Limits of an app and of one user in it; 0 is the default.
type Limits struct {
	AppMessages, AppRequests   int
	UserMessages, UserRequests int
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

// matchModel holds a model's name against a pattern in which '*' stands for anything.
func matchModel(pattern, model string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == model
	}
	model, ok := strings.CutPrefix(model, head)
	if !ok {
		return false
	}
	parts := strings.Split(rest, "*")
	last := parts[len(parts)-1]
	for _, p := range parts[:len(parts)-1] {
		at := strings.Index(model, p)
		if at < 0 {
			return false
		}
		model = model[at+len(p):]
	}
	return strings.HasSuffix(model, last)
}
