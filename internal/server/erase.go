package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// What happens to the running requests of a user who is deleted: the values of users.on_delete.
const (
	deleteCuts  = "cut"    // they end with an error
	deleteWaits = "finish" // they end by themselves, and what is the user's goes after them
)

// errUserDeleted is the cause with which the requests of a deleted user end.
var errUserDeleted = wire.Forbidden("The user was deleted by the administration.")

// flights are the running requests of users. The zero value has none.
type flights struct {
	mu      sync.Mutex
	running map[flyer]map[*context.CancelCauseFunc]bool
}

type flyer struct{ app, user string }

// enter notes a request of a user of an app until leave. Others come with their context as it is.
func (f *flights) enter(r *http.Request, c tenant.Caller) (_ *http.Request, leave func()) {
	if c.AppID == "" || c.UserID == "" {
		return r, func() {}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	who := flyer{c.AppID, c.UserID}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running == nil {
		f.running = map[flyer]map[*context.CancelCauseFunc]bool{}
	}
	if f.running[who] == nil {
		f.running[who] = map[*context.CancelCauseFunc]bool{}
	}
	f.running[who][&cancel] = true
	return r.WithContext(ctx), func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if delete(f.running[who], &cancel); len(f.running[who]) == 0 {
			delete(f.running, who)
		}
		cancel(nil)
	}
}

// count says how many requests of a user run; with a cause it ends them.
func (f *flights) count(c tenant.Caller, cause error) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.running[flyer{c.AppID, c.UserID}]
	for cancel := range all {
		if cause != nil {
			(*cancel)(cause)
		}
	}
	return len(all)
}

// ended gives the error of a request whose user was deleted meanwhile: that is why it failed, whatever failed.
func ended(r *http.Request, err error) error {
	if err != nil && errors.Is(context.Cause(r.Context()), errUserDeleted) {
		return errUserDeleted
	}
	return err
}

// erase is tenant.Service.Erase.
func (s *Server) erase(ctx context.Context, user tenant.Caller) (gone tenant.Erased, err error) {
	var cause error
	if s.cfg.Users.OnDelete != deleteWaits {
		cause = errUserDeleted
	}
	running := s.flights.count(user, cause)
	if running > 0 && cause == nil {
		return gone, nil
	}
	var elsewhere bool
	if gone.Containers, elsewhere, err = s.eraseContainers(ctx, user, cause == nil); err != nil {
		return gone, err
	}
	// A request that was cut may still be at its last words; it is looked for again later.
	gone.Finished = running == 0 && !elsewhere
	gone.Files, err = s.parts.files.DeletePrivate(ctx, user)
	return gone, err
}

// eraseContainers deletes the containers that are the user's alone. Some may lie elsewhere, on the disk of another server, which
// ends them; with wait they are left to it, as it alone knows whether requests of the user run there.
func (s *Server) eraseContainers(ctx context.Context, user tenant.Caller, wait bool) (n int, elsewhere bool, err error) {
	var own []container.ID
	for cursor := ""; ; {
		page, err := s.parts.containers.List(ctx, user, container.ListParams{Limit: 100, Cursor: cursor})
		if err != nil {
			return 0, false, fmt.Errorf("list containers of a user: %w", err)
		}
		for _, c := range page.Data {
			if c.Owner.Scope != tenant.ScopeUser || c.Owner.UserID != user.UserID {
				continue
			}
			far := s.parts.containers.Far(c)
			elsewhere = elsewhere || far
			if !far || !wait {
				own = append(own, c.ID)
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	for _, id := range own {
		err := s.parts.containers.Delete(ctx, user, id)
		switch {
		case err == nil:
			n++
		case wire.AsError(err).Type != wire.TypeNotFound: // deleted since it was read
			return n, elsewhere, err
		}
	}
	return n, elsewhere, nil
}
