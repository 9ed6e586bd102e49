package tenant

import "github.com/airlock-sandbox/airlock/internal/wire"

// CodeScopeMismatch is the code of a refusal because a narrower thing would flow into a wider one.
const CodeScopeMismatch = "scope_mismatch"

// Flow is what one request may combine, and what it creates. Bytes put into a container become visible to everybody who
// may use that container, so nothing narrow may flow into anything wider.
type Flow struct {
	caller Caller
	scope  Scope
	wide   bool // what a file's bytes reach is open to the whole app
}

// NewFlow applies the rule to the container of a request. named is the owner of the container that the request names, nil
// for none. sandbox says that code can run: a tool for it is offered, or a container made; naming one says so too. Errors:
// the constant 404 for a container that the caller may not use, a 400 with CodeScopeMismatch for a request that asks for app
// scope in a container of its own user.
func NewFlow(c Caller, named *Owner, sandbox bool) (Flow, error) {
	f := Flow{caller: c, scope: c.Owner().Scope}
	if named != nil {
		if !c.MayUse(*named) {
			return Flow{}, wire.NotFound()
		}
		if f.scope == ScopeApp && named.Scope == ScopeUser {
			return Flow{}, wire.Invalid("container: it has user scope, and this request asks for app scope (x-deepspace-sandbox-scope). " +
				"Send the request with user scope, or without `container` to get a container of app scope.").WithCode(CodeScopeMismatch)
		}
		f.scope = named.Scope
	}
	f.wide = f.scope == ScopeApp && (sandbox || named != nil)
	return f, nil
}

// Owner is what the containers and files that the request creates carry: always of the caller, in the scope of the container
// that the request names, else in the scope that it asks for.
func (f Flow) Owner() Owner {
	return Owner{AppID: f.caller.AppID, UserID: f.caller.UserID, Scope: f.scope}
}

// FileUse is one place in a request where a file stands.
type FileUse struct {
	Owner Owner
	ID    string
	Path  string // of the parameter, for the error
	// Inert says that no bytes flow through this place: it quotes what was made before.
	Inert bool
	// Held says that the named container holds the file already.
	Held bool
}

// Admit says whether the file may be used so: the constant 404 if the caller may not use it at all, a 400 with
// CodeScopeMismatch that names the file if its bytes would become visible to more than its owner.
func (f Flow) Admit(u FileUse) error {
	if !f.caller.MayUse(u.Owner) {
		return wire.NotFound()
	}
	if !f.wide || u.Owner.Scope == ScopeApp || u.Inert || u.Held {
		return nil
	}
	return wire.Invalid("%s: the file %s has user scope, and what this request runs has app scope, where every user of the app could read it. "+
		"Upload the file with app scope (x-deepspace-sandbox-scope: app), or send the request with user scope and a container of user scope.",
		u.Path, u.ID).WithCode(CodeScopeMismatch)
}
