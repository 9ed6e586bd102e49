package container

import (
	"context"
	"net/http"
	"time"

	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// object is a container in answers.
type object struct {
	ID           ID        `json:"id"`
	Type         string    `json:"type"`
	State        State     `json:"state"`
	RootFS       string    `json:"rootfs"`
	Inputs       []inputJS `json:"inputs"`
	CreatedAt    string    `json:"created_at"`
	LastUsedAt   string    `json:"last_used_at"`
	ExpiresAt    string    `json:"expires_at"`
	MaxExpiresAt string    `json:"max_expires_at"`
}

type inputJS struct {
	FileID string `json:"file_id"`
	Path   string `json:"path"`
}

func (s *Service) object(ctx context.Context, c *Container) (object, error) {
	in, err := inputs(ctx, s.DB, c.ID)
	if err != nil {
		return object{}, err
	}
	o := object{
		ID: c.ID, Type: "container", State: c.State, RootFS: c.RootFS, Inputs: make([]inputJS, 0, len(in)),
		CreatedAt: wire.FormatTime(c.CreatedAt), LastUsedAt: wire.FormatTime(c.LastUsedAt),
		ExpiresAt: wire.FormatTime(c.ExpiresAt), MaxExpiresAt: wire.FormatTime(c.MaxExpiresAt),
	}
	for _, i := range in {
		o.Inputs = append(o.Inputs, inputJS{i.FileID, i.Path})
	}
	return o, nil
}

func (s *Service) write(w http.ResponseWriter, r *http.Request, status int, c *Container) error {
	o, err := s.object(r.Context(), c)
	if err != nil {
		return err
	}
	return wire.WriteJSON(w, status, o)
}

// ServeCreate serves POST /airlock/v1/containers.
func (s *Service) ServeCreate(w http.ResponseWriter, r *http.Request, caller tenant.Caller) error {
	var body struct {
		Files               []file.ID `json:"files"`
		RootFS              string    `json:"rootfs"`
		ExpiresAfterSeconds *int64    `json:"expires_after_seconds"`
	}
	if err := wire.ReadJSON(r, wire.MaxJSONBody, &body); err != nil {
		return err
	}
	p := CreateParams{Files: body.Files, RootFS: body.RootFS}
	if n := body.ExpiresAfterSeconds; n != nil {
		if *n <= 0 || *n > int64(365*24*time.Hour/time.Second) {
			return wire.Invalid("expires_after_seconds: %d is not a possible life time", *n)
		}
		p.ExpiresAfter = time.Duration(*n) * time.Second
	}
	c, err := s.Create(r.Context(), caller, p)
	if err != nil {
		return err
	}
	return s.write(w, r, http.StatusOK, c)
}

// ServeFork serves POST /airlock/v1/containers/{id}/fork: the answer is the new container.
func (s *Service) ServeFork(w http.ResponseWriter, r *http.Request, caller tenant.Caller) error {
	c, err := s.Fork(r.Context(), caller, ID(r.PathValue("id")))
	if err != nil {
		return err
	}
	return s.write(w, r, http.StatusOK, c)
}

// ServeGet serves GET /airlock/v1/containers/{id}.
func (s *Service) ServeGet(w http.ResponseWriter, r *http.Request, caller tenant.Caller) error {
	c, err := s.Get(r.Context(), caller, ID(r.PathValue("id")))
	if err != nil {
		return err
	}
	return s.write(w, r, http.StatusOK, c)
}

// ServeList serves GET /airlock/v1/containers.
func (s *Service) ServeList(w http.ResponseWriter, r *http.Request, caller tenant.Caller) error {
	q := r.URL.Query()
	var p ListParams
	var given bool
	var err error
	if p.Limit, err = wire.QueryLimit(q, defaultListed, mostListed); err != nil {
		return err
	}
	if p.Cursor, given, err = wire.QueryOne(q, "page"); err != nil {
		return err
	}
	if given && p.Cursor == "" {
		return wire.Invalid("page: must not be empty.")
	}
	page, err := s.List(r.Context(), caller, p)
	if err != nil {
		return err
	}
	out := wire.Page[object]{Data: make([]object, 0, len(page.Data))}
	for _, c := range page.Data {
		o, err := s.object(r.Context(), c)
		if err != nil {
			return err
		}
		out.Data = append(out.Data, o)
	}
	if page.Next != "" {
		out.NextPage = &page.Next
	}
	return wire.WriteJSON(w, http.StatusOK, out)
}

// ServeDelete serves DELETE /airlock/v1/containers/{id}.
func (s *Service) ServeDelete(w http.ResponseWriter, r *http.Request, caller tenant.Caller) error {
	id := ID(r.PathValue("id"))
	if err := s.Delete(r.Context(), caller, id); err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, map[string]any{"id": id, "type": "container_deleted"})
}
