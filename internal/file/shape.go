package file

import (
	"encoding/json"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

const (
	betaFiles   = "files-api-2025-04-14"
	betaManaged = "managed-agents-2026-04-01"
)

// shape is how answers look. The same URLs answer in three ways, told apart by beta headers.
type shape struct {
	// legacy: no expires_at, id cursors, has_more. Older SDKs and the AI SDK ask for it.
	legacy bool
	// half: as without any header, and id cursors and has_more beside next_page.
	half bool
	// scope: the files' scope key is sent.
	scope bool
}

func shapeOf(betas map[string]bool) shape {
	s := shape{legacy: betas[betaFiles]}
	s.half = betas[betaManaged] && !s.legacy
	for b := range betas {
		s.scope = s.scope || strings.HasPrefix(b, "managed-agents-")
	}
	return s
}

type fileJSON struct {
	ID           ID              `json:"id"`
	Type         string          `json:"type"`
	Filename     string          `json:"filename"`
	MIME         string          `json:"mime_type"`
	Size         int64           `json:"size_bytes"`
	CreatedAt    string          `json:"created_at"`
	Downloadable bool            `json:"downloadable"`
	ExpiresAt    json.RawMessage `json:"expires_at,omitempty"` // absent in legacy, else a time or null
	Scope        json.RawMessage `json:"scope,omitempty"`      // only with a managed-agents beta; no file has one before sessions
}

func (s *Service) shape(sh shape, f *File) fileJSON {
	j := fileJSON{
		ID: f.ID, Type: "file", Filename: f.Filename, MIME: f.MIME, Size: f.Size,
		CreatedAt: wire.FormatTime(f.CreatedAt), Downloadable: s.downloadable(f),
	}
	if !sh.legacy {
		j.ExpiresAt = json.RawMessage("null")
		if f.ExpiresAt != nil {
			j.ExpiresAt = json.RawMessage(`"` + wire.FormatTime(*f.ExpiresAt) + `"`)
		}
	}
	if sh.scope {
		j.Scope = json.RawMessage("null")
	}
	return j
}

func (s *Service) downloadable(f *File) bool {
	return f.Origin == OriginOutput || s.UploadsDownloadable
}

type listGA struct {
	Data     []fileJSON `json:"data"`
	NextPage *string    `json:"next_page"`
}

type listLegacy struct {
	Data    []fileJSON `json:"data"`
	HasMore bool       `json:"has_more"`
	FirstID *ID        `json:"first_id"`
	LastID  *ID        `json:"last_id"`
}

type listHalf struct {
	listLegacy
	NextPage *string `json:"next_page"`
}

func (s *Service) listShape(sh shape, l *Listing) any {
	data := make([]fileJSON, len(l.Files))
	for i, f := range l.Files {
		data[i] = s.shape(sh, f)
	}
	var next *string
	if l.Next != "" {
		next = &l.Next
	}
	old := listLegacy{Data: data, HasMore: l.HasMore}
	if len(data) > 0 {
		old.FirstID, old.LastID = &data[0].ID, &data[len(data)-1].ID
	}
	switch {
	case sh.legacy:
		return old
	case sh.half:
		return listHalf{listLegacy: old, NextPage: next}
	}
	return listGA{Data: data, NextPage: next}
}
