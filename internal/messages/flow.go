package messages

import (
	"context"
	"slices"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// admit applies the access rule and the flow rule to the container and the files
// of a request: the container first, all files in one query. Nothing was done for
// the request until then, and no turn is waited for.
func (s *Service) admit(ctx context.Context, c tenant.Caller, r *request) (map[file.ID]*file.File, error) {
	owner, err := s.containers().Check(ctx, c, r.container.ID)
	if err != nil {
		return nil, err
	}
	flow, err := tenant.NewFlow(c, owner, r.version != "")
	if err != nil {
		return nil, err
	}
	held, err := s.held(ctx, r)
	if err != nil {
		return nil, err
	}
	known, err := s.authorize(ctx, c, r.refs, held)
	if err != nil {
		return nil, err
	}
	for _, ref := range r.refs {
		use := tenant.FileUse{ID: ref.ID, Path: ref.Path, Inert: ref.Kind == claude.RefQuoted, Held: held[file.ID(ref.ID)]}
		if f := known[file.ID(ref.ID)]; f != nil {
			use.Owner = f.Owner
		}
		if err := flow.Admit(use); err != nil {
			return nil, err
		}
	}
	return known, nil
}

// held is what the named container has inside, as far as the request asks.
func (s *Service) held(ctx context.Context, r *request) (map[file.ID]bool, error) {
	if r.container.ID == "" || !slices.ContainsFunc(r.refs, func(ref claude.FileRef) bool { return ref.Kind != claude.RefQuoted }) {
		return nil, nil
	}
	return s.containers().Holds(ctx, r.container.ID)
}
