package file

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// ListParams says which part of the caller's files to give. At most one of Page, IDs, AfterID and
// BeforeID is set.
type ListParams struct {
	// Limit is the number of files at most; 0 means 20. It does not apply to IDs.
	Limit int
	// Page is the Next of an earlier Listing.
	Page string
	// IDs asks for these files; those that are not the caller's are left out.
	IDs []ID
	// AfterID asks for what is older than this file, BeforeID for what is just newer.
	AfterID, BeforeID ID
}

// Listing is a part of the caller's files, newest first.
type Listing struct {
	Files []*File
	// Next is the cursor of the older files after these, "" when there are none.
	Next string
	// HasMore says whether more follow in the direction asked for.
	HasMore bool
}

const defaultLimit = 20

// List gives the files the caller may use.
func (s *Service) List(ctx context.Context, c tenant.Caller, p ListParams) (*Listing, error) {
	if p.IDs != nil {
		return s.listIDs(ctx, c, p.IDs)
	}
	if p.Limit == 0 {
		p.Limit = defaultLimit
	}
	at, err := s.listPosition(ctx, c, p)
	if err != nil {
		return nil, err
	}
	newer := p.BeforeID != ""
	rows, err := selectPage(ctx, s.DB.Read(), c, pageQuery{
		at: at, newer: newer, limit: p.Limit + 1, metadataLimit: s.shownSince(c),
	})
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	out := &Listing{HasMore: len(rows) > p.Limit}
	if out.HasMore {
		rows = rows[:p.Limit]
	}
	if newer {
		slices.Reverse(rows)
	}
	out.Files = files(rows)
	// Behind a page that was asked for by what follows it, there is always something.
	if len(rows) > 0 && (out.HasMore || newer) {
		last := rows[len(rows)-1]
		if out.Next, err = wire.EncodeCursor(s.CursorKey, listFilter(c), last.CreatedAt, last.ID); err != nil {
			return nil, fmt.Errorf("list files: %w", err)
		}
	}
	return out, nil
}

func (s *Service) listIDs(ctx context.Context, c tenant.Caller, ids []ID) (*Listing, error) {
	var list []string
	for _, id := range ids {
		if id.Valid() {
			list = append(list, string(id))
		}
	}
	rows, err := selectByIDs(ctx, s.DB.Read(), c, list, s.shownSince(c))
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	return &Listing{Files: files(rows)}, nil
}

// listPosition turns any of the cursors into a place in the order. The file of an id cursor may have been
// deleted meanwhile, by the very loop that pages through the list.
func (s *Service) listPosition(ctx context.Context, c tenant.Caller, p ListParams) (*position, error) {
	at := new(position)
	id, name := p.AfterID, "after_id"
	switch {
	case p.Page != "":
		return at, wire.DecodeCursor(s.CursorKey, listFilter(c), p.Page, &at.createdAt, &at.id)
	case p.BeforeID != "":
		id, name = p.BeforeID, "before_id"
	case p.AfterID == "":
		return nil, nil // no position is the beginning
	}
	row, err := selectOwned(ctx, s.DB.Read(), c, id)
	if errors.Is(err, db.ErrNotFound) {
		if c.Gateway {
			return nil, wire.Invalid("%s: invalid page token.", name)
		}
		return nil, wire.Invalid("%s: there is no such file.", name)
	}
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	at.createdAt, at.id = row.CreatedAt, row.ID
	return at, nil
}

// listFilter binds a cursor to the caller it was made for.
func listFilter(c tenant.Caller) string { return "files\x00" + c.AppID + "\x00" + c.UserID }

func files(rows []*fileRow) []*File {
	out := make([]*File, len(rows))
	for i, r := range rows {
		out[i] = r.file()
	}
	return out
}
