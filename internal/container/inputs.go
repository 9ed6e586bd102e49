package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// InputDir is where files given to a container appear; code may read it and not write it.
const InputDir = "/files/input"

// maxInputBytes bounds what one container may be given in all.
const maxInputBytes = 5 << 30

// maxNameBytes is the longest file name of a workspace.
const maxNameBytes = 255

// admitFiles applies the flow rule to the files of a container that is to be made.
func admitFiles(caller tenant.Caller, ids []file.ID, found map[file.ID]*file.File) error {
	flow, err := tenant.NewFlow(caller, nil, true)
	for i, id := range ids {
		if err == nil {
			err = flow.Admit(tenant.FileUse{Owner: found[id].Owner, ID: string(id), Path: "files." + strconv.Itoa(i)})
		}
	}
	return err
}

// Holds gives the files that a container was given and still has. The container was read under the caller's rule before.
func (s *Service) Holds(ctx context.Context, id ID) (map[file.ID]bool, error) {
	in, err := inputs(ctx, s.DB, id)
	if err != nil {
		return nil, err
	}
	held := make(map[file.ID]bool, len(in))
	for _, f := range in {
		held[file.ID(f.FileID)] = true
	}
	return held, nil
}

// AddFile puts a file of the Files API into the container and returns its path. A file that the container holds already
// is left as it is. When AddFile returns, a command can see the file.
func (l *Lease) AddFile(ctx context.Context, caller tenant.Caller, f *file.File) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ensure(ctx); err != nil {
		return "", err
	}
	if err := l.loadInputs(ctx); err != nil {
		return "", err
	}
	if p := pathOf(l.inputs, string(f.ID)); p != "" {
		return p, nil
	}
	if totalSize(l.inputs)+f.Size > maxInputBytes {
		return "", wire.Invalid("file %s: the files given to one container may have %s in all", f.ID, wire.FormatSize(maxInputBytes))
	}
	p := path.Join(InputDir, freeName(file.DiskName(f.Filename), l.inputs))
	sb, err := l.sandbox(ctx)
	if err != nil {
		return "", err
	}
	if err := l.put(ctx, sb, caller, f, p); err != nil {
		return "", err
	}
	// The row comes last, when the file is safe: it promises that the workspace holds the file, and no later turn looks
	// again. A crash before it leaves a file that the next attempt overwrites.
	l.live.markDirty()
	if err := l.s.save(ctx, l.live); err != nil {
		return "", fmt.Errorf("sync workspace of container %s: %w", l.c.ID, err)
	}
	in := Input{FileID: string(f.ID), Path: p, size: f.Size}
	if err := addInput(ctx, l.s.DB, l.c.ID, in, l.s.now()); err != nil {
		return "", err
	}
	l.inputs = append(l.inputs, in)
	l.filesIn += f.Size
	return p, nil
}

func (l *Lease) put(ctx context.Context, sb *sandbox.Sandbox, caller tenant.Caller, f *file.File, p string) (err error) {
	meta, body, err := l.s.Files.Open(ctx, caller, f.ID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	err = sb.Put(ctx, p, &sizedReader{r: body, left: meta.Size}, guest.PutOptions{Mode: 0o444, MkdirAll: true})
	if errors.Is(err, guest.ErrNoSpace) {
		e := wire.Invalid("file %s does not fit into the workspace of the container (%s in all)", f.ID,
			wire.FormatSize(l.s.limits().DiskBytes))
		e.Err = err
		return e
	}
	if err != nil {
		return fmt.Errorf("put file %s into container %s: %w", f.ID, l.c.ID, err)
	}
	return nil
}

func (l *Lease) loadInputs(ctx context.Context) error {
	if l.loaded {
		return nil
	}
	in, err := inputs(ctx, l.s.DB, l.c.ID)
	if err != nil {
		return err
	}
	l.inputs, l.loaded = in, true
	return nil
}

func totalSize(all []Input) int64 {
	var sum int64
	for _, in := range all {
		sum += in.size
	}
	return sum
}

func pathOf(all []Input, fileID string) string {
	for _, in := range all {
		if in.FileID == fileID {
			return in.Path
		}
	}
	return ""
}

// freeName is the rule for two files of one name: the second is called "name (2).ext". What follows the first dot of
// "archive.tar.gz" is not all extension; only the last part is, as file managers do it.
func freeName(name string, taken []Input) string {
	used := make(map[string]bool, len(taken))
	for _, in := range taken {
		used[path.Base(in.Path)] = true
	}
	if !used[name] {
		return name
	}
	ext := path.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	if stem == "" { // ".bashrc" is a name, not an extension
		stem, ext = name, ""
	}
	for n := 2; ; n++ {
		suffix := fmt.Sprintf(" (%d)%s", n, ext)
		candidate := wire.Cut(stem, maxNameBytes-len(suffix)) + suffix
		if !used[candidate] {
			return candidate
		}
	}
}

// sizedReader guards against a reader that ends early without an error: the size is known from the row.
type sizedReader struct {
	r    io.Reader
	left int64
}

func (s *sizedReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.left -= int64(n)
	if errors.Is(err, io.EOF) && s.left != 0 {
		return n, io.ErrUnexpectedEOF
	}
	return n, err
}
