package file

import (
	"context"
	"fmt"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// maxReferences bounds the files one request can name; the query grows with them.
const maxReferences = 5000

// Authorize checks the references of a message through which bytes flow, in one query: every id must
// exist, be the caller's to use (else the constant 404) and not be expired (else 404 file_expired).
func (s *Service) Authorize(ctx context.Context, c tenant.Caller, ids []ID) (map[ID]*File, error) {
	return s.AuthorizeQuoted(ctx, c, ids, nil)
}

// AuthorizeQuoted is Authorize with a second set: ids that replayed history quotes. They must have been
// the caller's to use and may be expired or deleted since, because applications delete outputs that the
// conversation goes on to quote. One query serves both sets; the first bad id in order decides the error.
func (s *Service) AuthorizeQuoted(ctx context.Context, c tenant.Caller, ids, quoted []ID) (map[ID]*File, error) {
	wanted := make(map[ID]struct{}, len(ids)+len(quoted))
	var list []string
	for _, set := range [][]ID{ids, quoted} {
		for _, id := range set {
			if _, ok := wanted[id]; ok || !id.Valid() {
				continue
			}
			wanted[id] = struct{}{}
			list = append(list, string(id))
		}
	}
	if len(list) > maxReferences {
		return nil, wire.Invalid("messages: more than %d files are referenced.", maxReferences)
	}
	rows, err := selectForReferences(ctx, s.DB.Read(), c, list)
	if err != nil {
		return nil, fmt.Errorf("authorize files: %w", err)
	}
	found := make(map[ID]*File, len(rows))
	for _, r := range rows {
		found[ID(r.ID)] = r.file()
	}
	for _, id := range ids {
		f, ok := found[id]
		if !ok || f.DeletedAt != nil {
			return nil, wire.NotFound()
		}
		if f.Expired(s.now()) {
			return nil, errExpired(id)
		}
	}
	for _, id := range quoted {
		if _, ok := found[id]; !ok {
			return nil, wire.NotFound()
		}
	}
	return found, nil
}
