package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// maxPath is the kernel's limit, less its NUL.
const maxPath = 4095

// Put writes a file: into a temporary file beside it that then takes its place,
// so that nobody sees half of it. Relative paths begin at Home. An error of r
// is returned and leaves the old file as it was.
func (c *Conn) Put(ctx context.Context, path string, r io.Reader, opts PutOptions) error {
	if err := checkPath("put", path); err != nil {
		return err
	}
	k, err := c.begin()
	if err != nil {
		return err
	}
	defer c.end(k)
	file := &FileSpec{Path: []byte(path), Mode: opts.Mode, AsCode: opts.AsCode, All: opts.MkdirAll}
	if err := c.send(&Frame{Type: TypePut, ID: k.id, File: file}); err != nil {
		return err
	}
	sent, err := c.sendAll(ctx, k, r)
	if err != nil {
		return err
	}
	f, err := c.next(ctx, k)
	if err != nil {
		return err
	}
	if err := faultOf("put", file, f); err != nil {
		return err
	}
	if f.Type != TypeOK || f.N != sent {
		err := fmt.Errorf("put: guest wrote %d of %d bytes: %w", f.N, sent, ErrProtocol)
		c.fail(err)
		return err
	}
	return nil
}

// sendAll carries r until its end or until the guest has answered.
func (c *Conn) sendAll(ctx context.Context, k *call, r io.Reader) (int64, error) {
	buf := make([]byte, MaxData)
	var sent int64
	for {
		n, rerr := fill(r, buf)
		if n > 0 {
			over, err := c.sendData(ctx, k, buf[:n])
			if over || err != nil {
				return sent, err
			}
			sent += int64(n)
		}
		if errors.Is(rerr, io.EOF) {
			_, err := c.sendData(ctx, k, nil)
			return sent, err
		}
		if rerr != nil {
			return sent, fmt.Errorf("put: read source: %w", rerr)
		}
	}
}

// fill is io.ReadFull without an error of its own: io.ErrUnexpectedEOF is how a
// source says that it broke off, as a request body does.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var more int
		more, err = r.Read(buf[n:])
		n += more
	}
	return n, err
}

func checkPath(op, path string) error {
	detail := ""
	switch {
	case path == "":
		detail = "the path is empty"
	case strings.IndexByte(path, 0) >= 0:
		detail = "the path has a NUL byte"
	case len(path) > maxPath:
		detail = "the path is too long"
	default:
		return nil
	}
	return &Error{Op: op, Detail: detail, Err: ErrInvalidPath}
}

// Get opens a regular file for reading; anything else is refused without being
// opened for longer than it takes to look. The reader is bound to ctx and must
// be closed. Its content is a snapshot only if nothing writes meanwhile.
func (c *Conn) Get(ctx context.Context, path string, opts GetOptions) (io.ReadCloser, FileInfo, error) {
	if err := checkPath("get", path); err != nil {
		return nil, FileInfo{}, err
	}
	k, err := c.begin()
	if err != nil {
		return nil, FileInfo{}, err
	}
	file := &FileSpec{Path: []byte(path), AsCode: opts.AsCode, NoSymlinks: opts.NoSymlinks, Max: opts.Max}
	d := &download{ctx: ctx, c: c, k: k, op: "get", file: file, max: opts.Max}
	info, err := d.open(TypeGet)
	if err != nil {
		d.Close()
		return nil, FileInfo{}, err
	}
	return d, info, nil
}

// download reads the data frames of a call.
type download struct {
	// ctx bounds the whole read: io.Reader has no place for it.
	ctx  context.Context
	c    *Conn
	k    *call
	op   string
	file *FileSpec
	max  int64

	left  []byte
	frame *Frame
	got   int64
	err   error
	once  sync.Once
}

func (d *download) open(t Type) (FileInfo, error) {
	if err := d.c.send(&Frame{Type: t, ID: d.k.id, File: d.file}); err != nil {
		return FileInfo{}, err
	}
	f, err := d.c.next(d.ctx, d.k)
	if err != nil {
		return FileInfo{}, err
	}
	if err := faultOf(d.op, d.file, f); err != nil {
		return FileInfo{}, err
	}
	if f.Type != TypeInfo || f.Entry == nil || f.Entry.Type != TypeFile {
		return FileInfo{}, d.breach("unexpected " + string(f.Type))
	}
	return f.Entry.info(), nil
}

func (d *download) breach(what string) error {
	err := fmt.Errorf("%s: %s: %w", d.op, what, ErrProtocol)
	d.c.fail(err)
	return err
}

func (d *download) Read(p []byte) (int, error) {
	for len(d.left) == 0 && d.err == nil {
		d.err = d.fetch()
	}
	if len(d.left) == 0 {
		return 0, d.err
	}
	n := copy(p, d.left)
	d.left = d.left[n:]
	if len(d.left) == 0 {
		f := d.frame
		d.frame = nil
		if err := d.c.consumed(d.k, f); err != nil {
			d.err = err
		}
	}
	return n, nil
}

func (d *download) fetch() error {
	f, err := d.c.next(d.ctx, d.k)
	if err != nil {
		return err
	}
	switch f.Type {
	case TypeData:
		d.got += int64(len(f.Payload))
		if d.max > 0 && d.got > d.max {
			return d.breach("more data than asked for")
		}
		d.left, d.frame = f.Payload, f
		return nil
	case TypeOK:
		if f.N != d.got {
			return d.breach("bytes are missing")
		}
		return io.EOF
	case TypeFault:
		return faultOf(d.op, d.file, f)
	default:
		return d.breach("unexpected " + string(f.Type))
	}
}

// Close gives the rest of the file up.
func (d *download) Close() error {
	d.once.Do(func() { d.c.end(d.k) })
	return nil
}

// Stat describes a path.
func (c *Conn) Stat(ctx context.Context, path string, opts StatOptions) (FileInfo, error) {
	if err := checkPath("stat", path); err != nil {
		return FileInfo{}, err
	}
	file := &FileSpec{Path: []byte(path), AsCode: opts.AsCode, NoFollow: opts.NoFollow}
	f, err := c.ask(ctx, "stat", &Frame{Type: TypeStat, File: file})
	if err != nil {
		return FileInfo{}, err
	}
	if f.Entry == nil {
		err := fmt.Errorf("stat: answer without entry: %w", ErrProtocol)
		c.fail(err)
		return FileInfo{}, err
	}
	return f.Entry.info(), nil
}

// List lists what is in a folder with the rights of the code: folders before
// their content, names in byte order, never through a link. Depth 1 leaves the
// content of the folders in it out, depth 2 has that too, and so on. If there are more than limit entries it returns limit of them
// and an error that matches ErrTooLarge.
func (c *Conn) List(ctx context.Context, dir string, depth, limit int) ([]FileInfo, error) {
	if err := checkPath("list", dir); err != nil {
		return nil, err
	}
	k, err := c.begin()
	if err != nil {
		return nil, err
	}
	file := &FileSpec{Path: []byte(dir), AsCode: true, Depth: depth, Max: int64(limit)}
	d := &download{ctx: ctx, c: c, k: k, op: "list", file: file}
	defer d.Close()
	if err := c.send(&Frame{Type: TypeList, ID: k.id, File: file}); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(d)
	var list []FileInfo
	for {
		var e Entry
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return list, d.entryError(err)
		}
		if len(list) == limit {
			return list, d.breach("more entries than asked for")
		}
		if checkPath("list", string(e.Path)) != nil || !bytes.HasPrefix(e.Path, []byte("/")) {
			return list, d.breach("entry without path")
		}
		list = append(list, e.info())
	}
}

// entryError tells the stream's own error from a malformed entry.
func (d *download) entryError(err error) error {
	if d.err != nil && !errors.Is(d.err, io.EOF) {
		return d.err
	}
	return d.breach(fmt.Sprintf("malformed entry: %v", err))
}

// Mkdir makes a folder. An existing one is an error that matches no sentinel
// unless opts.All is set.
func (c *Conn) Mkdir(ctx context.Context, path string, opts MkdirOptions) error {
	file := &FileSpec{Path: []byte(path), Mode: opts.Mode, AsCode: opts.AsCode, Code: opts.Code, All: opts.All}
	return c.askFile(ctx, "mkdir", TypeMkdir, file)
}

// Remove removes a file, or an empty folder, or with opts.All a whole tree. A
// link is removed, not followed.
func (c *Conn) Remove(ctx context.Context, path string, opts RemoveOptions) error {
	file := &FileSpec{Path: []byte(path), AsCode: opts.AsCode, All: opts.All}
	return c.askFile(ctx, "remove", TypeRemove, file)
}

func (c *Conn) askFile(ctx context.Context, op string, t Type, file *FileSpec) error {
	if err := checkPath(op, string(file.Path)); err != nil {
		return err
	}
	_, err := c.ask(ctx, op, &Frame{Type: t, File: file})
	return err
}

// info translates an entry; what is not one of the known types is TypeOther.
func (e *Entry) info() FileInfo {
	t := e.Type
	switch t {
	case TypeFile, TypeDir, TypeSymlink:
	default:
		t = TypeOther
	}
	return FileInfo{
		Path: string(e.Path), Type: t, Size: max(e.Size, 0), Blocks: max(e.Blocks, 0),
		Mode: e.Mode & 0o7777, ModTime: time.Unix(0, e.ModTime).UTC(),
	}
}
