package messages

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// injected begins every text that this server puts into a user message.
const injected = "[airlock] "

// Bounds on the files of one request.
const (
	maxUploads = 5 << 30  // loaded into a container
	maxInline  = 32 << 20 // put into the request to the upstream
)

// loaded is what the files of a request have become.
type loaded struct {
	paths   map[string]string       // container_upload: path inside
	sources map[string]*claude.Node // document and image: source for the upstream
}

// show returns the block as the upstream is shown it, the same node when
// nothing is to be changed.
func (l loaded) show(b *claude.Node) *claude.Node {
	if len(l.sources) == 0 && len(l.paths) == 0 {
		return b
	}
	return l.inline(b)
}

// told is the text that stands for a container_upload block.
func (l loaded) told(b *claude.Node) *claude.Node {
	p := l.paths[b.Get("file_id").Str()]
	t := claude.NewObject("type", "text", "text", injected+"The user gave you the file "+strconv.Quote(path.Base(p))+". In the sandbox its path is "+p)
	if cc := b.Get("cache_control"); !cc.IsNull() {
		t.Set("cache_control", cc)
	}
	return t
}

// inline replaces file sources and uploads in a block, at any depth of content.
func (l loaded) inline(n *claude.Node) *claude.Node {
	switch {
	case n.Is(claude.Object) && n.Type() == "container_upload":
		return l.told(n)
	case n.Is(claude.Object) && n.Type() == "file" && l.sources[n.Get("file_id").Str()] != nil:
		return l.sources[n.Get("file_id").Str()]
	case n.Is(claude.Object):
		var copied *claude.Node
		for _, m := range n.Members {
			if m.Name == "input" {
				continue
			}
			if v := l.inline(m.Value); v != m.Value {
				if copied == nil {
					copied = n.Shallow()
				}
				copied.Set(m.Name, v)
			}
		}
		if copied != nil {
			return copied
		}
	case n.Is(claude.Array):
		var copied *claude.Node
		for i, it := range n.Items {
			if v := l.inline(it); v != it {
				if copied == nil {
					copied = n.Shallow()
				}
				copied.Items[i] = v
			}
		}
		if copied != nil {
			return copied
		}
	}
	return n
}

// fileStore is what the files of a request need of file.Service.
type fileStore interface {
	AuthorizeQuoted(ctx context.Context, c tenant.Caller, ids, quoted []file.ID) (map[file.ID]*file.File, error)
	Open(ctx context.Context, c tenant.Caller, id file.ID) (*file.File, io.ReadCloser, error)
}

// loadFiles puts the uploads among the checked files into the container and
// reads the documents and images that go to the model.
func (s *Service) loadFiles(ctx context.Context, c tenant.Caller, r *request, known map[file.ID]*file.File, p place) (loaded, error) {
	l := loaded{paths: map[string]string{}, sources: map[string]*claude.Node{}}
	var err error
	for _, ref := range r.refs {
		f := known[file.ID(ref.ID)]
		switch {
		case ref.Kind == claude.RefSource && l.sources[ref.ID] == nil:
			l.sources[ref.ID], err = s.source(ctx, c, r, ref, f)
		case ref.Kind == claude.RefUpload && l.paths[ref.ID] == "" && r.counting:
			l.paths[ref.ID] = "/files/input/" + f.Filename
		case ref.Kind == claude.RefUpload && l.paths[ref.ID] == "":
			l.paths[ref.ID], err = p.AddFile(ctx, c, f)
		}
		if err != nil {
			return l, err
		}
	}
	return l, nil
}

// authorize checks every file of the request in one query. Of a file that the
// container holds already nothing is read again, so that it may be deleted or
// expired since.
func (s *Service) authorize(ctx context.Context, c tenant.Caller, refs []claude.FileRef, held map[file.ID]bool) (map[file.ID]*file.File, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	var ids, quoted []file.ID
	for _, ref := range refs {
		if ref.Kind == claude.RefQuoted || ref.Kind == claude.RefUpload && held[file.ID(ref.ID)] {
			quoted = append(quoted, file.ID(ref.ID))
		} else {
			ids = append(ids, file.ID(ref.ID))
		}
	}
	known, err := s.files().AuthorizeQuoted(ctx, c, ids, quoted)
	if err != nil {
		return nil, err
	}
	return known, checkSizes(refs, known)
}

func checkSizes(refs []claude.FileRef, known map[file.ID]*file.File) error {
	var upload, inline int64
	for _, ref := range refs {
		f := known[file.ID(ref.ID)]
		if f == nil {
			continue
		}
		switch ref.Kind {
		case claude.RefUpload:
			upload += f.Size
		case claude.RefSource:
			// It is written out in each place where it stands.
			inline += f.Size * int64(ref.Uses)
		case claude.RefOther, claude.RefQuoted:
		}
		if upload > maxUploads {
			return wire.Invalid("%s: the container_upload files of a request may have %s in all.", ref.Path, wire.FormatSize(maxUploads))
		}
		if inline > maxInline {
			return wire.Invalid("%s: the document and image files of a request may have %s in all; give large files to the sandbox with container_upload.", ref.Path, wire.FormatSize(maxInline))
		}
	}
	return nil
}

// accepted says which MIME types a document or an image may have.
func accepted(block, mime string) bool {
	switch mime {
	case "application/pdf", "text/plain":
		return block == "document"
	case "image/jpeg", "image/png", "image/gif", "image/webp":
		return block == "image"
	}
	return false
}

// source reads a file and makes the inline source of it, because an upstream
// does not know our files.
func (s *Service) source(ctx context.Context, c tenant.Caller, r *request, ref claude.FileRef, f *file.File) (_ *claude.Node, err error) {
	kind := r.holder(ref.Path)
	if !accepted(kind, f.MIME) {
		return nil, wire.Invalid("%s: a file of type %s cannot be used in a block of type %s; give it to the sandbox with container_upload.", ref.Path, f.MIME, kind)
	}
	_, body, err := s.files().Open(ctx, c, f.ID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	b, err := io.ReadAll(io.LimitReader(body, maxInline+1))
	if err != nil {
		return nil, fmt.Errorf("read file %s: %w", f.ID, err)
	}
	if f.MIME == "text/plain" {
		return claude.NewObject("type", "text", "media_type", f.MIME, "data", string(b)), nil
	}
	return claude.NewObject("type", "base64", "media_type", f.MIME, "data", base64.StdEncoding.EncodeToString(b)), nil
}

// holder is the type of the block whose source has this path.
func (r *request) holder(refPath string) string {
	n := r.Root
	block := n
	for step := range strings.SplitSeq(refPath, ".") {
		if i, err := strconv.Atoi(step); err == nil && n.Is(claude.Array) && i < len(n.Items) {
			n = n.Items[i]
		} else {
			if step == "source" {
				block = n
			}
			n = n.Get(step)
		}
	}
	return block.Type()
}

func (s *Service) files() fileStore {
	if s.store != nil {
		return s.store
	}
	return s.Files
}

// count is count_tokens: the request as the upstream would be shown it.
func (s *Service) count(ctx context.Context, c tenant.Caller, r *request) (*claude.Node, error) {
	e, err := s.Upstreams.For(r.Model())
	if err != nil {
		return nil, err
	}
	if err := s.enter(c, r, e); err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	known, err := s.admit(ctx, c, r)
	if err != nil {
		return nil, err
	}
	files, err := s.loadFiles(ctx, c, r, known, nil)
	if err != nil {
		return nil, err
	}
	return e.CountTokens(ctx, s.call(r, nil, files))
}
