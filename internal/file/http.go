package file

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"

	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

const (
	// envelope is how much longer than the file the multipart body around it may be.
	envelope = 64 << 10
	maxLimit = 1000
	maxIDs   = 100
)

// ServeUpload answers POST /v1/files.
func (s *Service) ServeUpload(w http.ResponseWriter, r *http.Request, c tenant.Caller) error {
	limit := s.limitFor(c)
	if r.ContentLength > limit+envelope {
		return tooLarge(limit)
	}
	// The form around the file is bounded too: a preamble or a header can be as long as a file.
	r.Body = &limitedBody{limitedReader{r: r.Body, left: limit + envelope, over: tooLarge(limit)}, r.Body}
	sh := shapeFor(r, c)
	up := upload{s: s, r: r, limit: limit, legacy: sh.legacy}
	err := wire.ReadMultipart(r, up.part)
	if err == nil && up.staged == nil {
		err = wire.Invalid("file: this part is missing.")
	}
	if err != nil {
		s.discard(r.Context(), up.staged)
		return err
	}
	f, err := s.finishUpload(r.Context(), c, up.staged, expiryFor(c, up.expiresIn))
	if err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, s.shape(sh, f))
}

type limitedBody struct {
	limitedReader
	io.Closer
}

// upload collects the parts of a form, which come in any order: the Go SDK sends the expiry before the
// file, the TypeScript SDK after it.
type upload struct {
	s         *Service
	r         *http.Request
	limit     int64
	legacy    bool
	staged    *staged
	expiresIn *int64
}

func (u *upload) part(p *wire.Part) error {
	switch p.Name {
	case "file":
		return u.file(p)
	case "expires_in_seconds":
		return u.expiry(p)
	}
	return wire.Invalid("%s: there is no such part; allowed: file, expires_in_seconds.", strconv.QuoteToASCII(wire.Cut(p.Name, 64)))
}

func (u *upload) file(p *wire.Part) error {
	if u.staged != nil {
		return wire.Invalid("file: given more than once; upload one file per request.")
	}
	if u.legacy && p.ContentType == "" {
		return wire.Invalid("file: the part has no Content-Type.")
	}
	st, err := u.s.stageUpload(u.r.Context(), UploadParams{Filename: p.Filename, MIME: p.ContentType, Body: p}, u.limit)
	if err != nil {
		return err
	}
	u.staged = st
	return nil
}

var decimal = regexp.MustCompile(`^[0-9]{1,18}$`)

func (u *upload) expiry(p *wire.Part) error {
	if u.expiresIn != nil {
		return wire.Invalid("expires_in_seconds: given more than once.")
	}
	b, err := io.ReadAll(io.LimitReader(p, 32))
	if err != nil {
		return err
	}
	n := int64(-1)
	if decimal.Match(b) {
		if n, err = strconv.ParseInt(string(b), 10, 64); err != nil {
			n = -1
		}
	}
	if err := checkExpiry(&n); err != nil {
		return err
	}
	u.expiresIn = &n
	return nil
}

// ServeList answers GET /v1/files.
func (s *Service) ServeList(w http.ResponseWriter, r *http.Request, c tenant.Caller) error {
	sh := shapeFor(r, c)
	p, empty, err := listParams(r.URL.Query(), sh)
	if err != nil {
		return err
	}
	l := new(Listing)
	if !empty {
		if l, err = s.List(r.Context(), c, p); err != nil {
			return err
		}
	}
	return wire.WriteJSON(w, http.StatusOK, s.listShape(sh, l))
}

// listParams reads the query. empty means that nothing can match.
func listParams(q url.Values, sh shape) (p ListParams, empty bool, err error) {
	if p.Limit, err = wire.QueryLimit(q, defaultLimit, maxLimit); err != nil {
		return p, false, err
	}
	var after, before string
	for name, into := range map[string]*string{"page": &p.Page, "after_id": &after, "before_id": &before} {
		v, ok, err := wire.QueryOne(q, name)
		if err != nil {
			return p, false, err
		}
		if ok && v == "" {
			return p, false, wire.Invalid("%s: must not be empty.", name)
		}
		*into = v
	}
	p.AfterID, p.BeforeID = ID(after), ID(before)
	if err := p.readIDs(q); err != nil {
		return p, false, err
	}
	if err := p.check(q, sh); err != nil {
		return p, false, err
	}
	return p, q.Has("scope_id") && sh.scope, nil
}

// readIDs takes ids[] and ids, each as often as given.
func (p *ListParams) readIDs(q url.Values) error {
	if !q.Has("ids[]") && !q.Has("ids") {
		return nil
	}
	seen := map[ID]bool{}
	p.IDs = []ID{}
	for _, v := range append(append([]string{}, q["ids[]"]...), q["ids"]...) {
		if !seen[ID(v)] {
			seen[ID(v)] = true
			p.IDs = append(p.IDs, ID(v))
		}
	}
	if len(p.IDs) > maxIDs {
		return wire.Invalid("ids[]: more than %d ids.", maxIDs)
	}
	return nil
}

// check applies which cursors a shape has and which exclude each other.
func (p *ListParams) check(q url.Values, sh shape) error {
	idCursor := p.AfterID != "" || p.BeforeID != ""
	switch {
	case sh.legacy && p.Page != "":
		return wire.Invalid("page: not with the beta header %s; use after_id.", betaFiles)
	case sh.legacy && p.IDs != nil:
		return wire.Invalid("ids[]: not with the beta header %s.", betaFiles)
	case idCursor && !sh.legacy && !sh.half && p.AfterID != "":
		return wire.Invalid("after_id: use page.")
	case idCursor && !sh.legacy && !sh.half:
		return wire.Invalid("before_id: use page.")
	case p.AfterID != "" && p.BeforeID != "":
		return wire.Invalid("before_id: not together with after_id.")
	case idCursor && (p.Page != "" || p.IDs != nil):
		return wire.Invalid("page: not together with after_id, before_id or ids[].")
	case p.IDs != nil && (p.Page != "" || q.Has("limit")):
		return wire.Invalid("ids[]: not together with page or limit.")
	case q.Has("scope_id") && !sh.scope && !sh.legacy:
		return wire.Invalid("scope_id: needs a managed-agents beta header.")
	}
	return nil
}

// ServeGet answers GET /v1/files/{id}.
func (s *Service) ServeGet(w http.ResponseWriter, r *http.Request, c tenant.Caller) error {
	f, err := s.Get(r.Context(), c, ID(r.PathValue("id")))
	if err != nil {
		return err
	}
	if c.Gateway && f.Expired(s.now()) {
		return errExpired(f.ID)
	}
	return wire.WriteJSON(w, http.StatusOK, s.shape(shapeFor(r, c), f))
}

// ServeDelete answers DELETE /v1/files/{id}.
func (s *Service) ServeDelete(w http.ResponseWriter, r *http.Request, c tenant.Caller) error {
	id := r.PathValue("id")
	if err := s.Delete(r.Context(), c, ID(id)); err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, map[string]string{"id": id, "type": "file_deleted"})
}

// ServeDownload answers GET and HEAD /v1/files/{id}/content.
func (s *Service) ServeDownload(w http.ResponseWriter, r *http.Request, c tenant.Caller) error {
	f, err := s.Get(r.Context(), c, ID(r.PathValue("id")))
	if err != nil {
		return err
	}
	if f.Expired(s.now()) {
		return errExpired(f.ID)
	}
	if !s.downloadable(f) {
		return errNotDownloadable(f.ID)
	}
	rg, err := rangeOf(r.Header, f)
	if err != nil {
		if _, ok := errors.AsType[*wire.Error](err); ok {
			w.Header().Set("Content-Range", "bytes */"+strconv.FormatInt(f.Size, 10))
		}
		return err
	}
	if notModified(r.Header, f) {
		w.Header().Set("ETag", etag(f))
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if r.Method == http.MethodHead {
		writeHead(w, f, rg)
		return nil
	}
	body, err := s.openBlob(r.Context(), c, f, rg.start)
	if err != nil {
		return err
	}
	writeHead(w, f, rg)
	return errors.Join(wire.Send(w, body, rg.length), body.Close())
}

// writeHead sends the headers. The type is what was stored and never guessed by a browser; a page among the
// outputs can neither run scripts nor be shown in place.
func writeHead(w http.ResponseWriter, f *File, rg byteRange) {
	h := w.Header()
	h.Set("Content-Type", f.MIME)
	h.Set("Content-Length", strconv.FormatInt(rg.length, 10))
	h.Set("Content-Disposition", contentDisposition(f.Filename))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("Cache-Control", "private, no-store")
	h.Set("Accept-Ranges", "bytes")
	h.Set("ETag", etag(f))
	if !rg.partial {
		w.WriteHeader(http.StatusOK)
		return
	}
	h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", rg.start, rg.start+rg.length-1, f.Size))
	w.WriteHeader(http.StatusPartialContent)
}
