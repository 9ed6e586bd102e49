package claude

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

// MaxReferences is the largest number of distinct files one request may use;
// outputs quoted in replayed results do not count, MaxQuoted bounds those.
const (
	MaxReferences = 100
	MaxQuoted     = 5000
)

// RefKind says what a file id stands for.
type RefKind uint8

// The kinds of file reference.
const (
	RefOther  RefKind = iota // in a block this server does not know: checked like a use
	RefUpload                // a container_upload block
	RefSource                // the source of a document or an image
	RefQuoted                // an output named in a replayed result block, or a citation: a quotation, never resolved
)

// FileRef is one file id in a request, with the path of its member.
type FileRef struct {
	ID   string
	Path string
	Kind RefKind
	Uses int // in how many places it stands
}

// References finds every member named file_id in the request, at any depth, in
// document order; an id that stands in several places for the same kind of
// thing is named once, with the first place. Tool inputs and schemas are application data and are not
// searched; blocks of unknown type are. A file_id that is neither a string nor
// null is refused.
func (r *Request) References() ([]FileRef, error) {
	w := &walker{distinct: map[string]bool{}, seen: map[FileRef]int{}}
	if err := w.walk(r.Root, nil); err != nil {
		return nil, err
	}
	return w.refs, nil
}

type walker struct {
	refs     []FileRef
	distinct map[string]bool
	seen     map[FileRef]int // indexes in refs, by id and kind
	quoted   int
}

func (w *walker) walk(n *Node, path []string) error {
	if n.Is(Array) {
		for i, it := range n.Items {
			if err := w.walk(it, append(path, strconv.Itoa(i))); err != nil {
				return err
			}
		}
		return nil
	}
	if !n.Is(Object) {
		return nil
	}
	if id := n.Get("file_id"); n.Type() == "container_upload" && id.IsNull() {
		return wire.Invalid("%s: a file id is required.", wire.JoinPath(append(path, "file_id")))
	}
	for _, m := range n.Members {
		p := append(path, m.Name)
		if m.Name == "file_id" && !m.Value.IsNull() {
			if err := w.add(n, m.Value, p); err != nil {
				return err
			}
			continue
		}
		if opaque(n, m.Name, path) {
			continue
		}
		if err := w.walk(m.Value, p); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) add(holder, value *Node, path []string) error {
	id := value.Str()
	if id == "" {
		return wire.Invalid("%s: a file id is required.", wire.JoinPath(path))
	}
	if !likeAnID(id) {
		return wire.Invalid("%s: this cannot be the id of a file.", wire.JoinPath(path))
	}
	kind := RefOther
	switch holder.Type() {
	case "container_upload":
		kind = RefUpload
	case "file":
		kind = RefSource
	case "bash_code_execution_output", "code_execution_output", "char_location", "page_location", "content_block_location":
		kind = RefQuoted
	}
	key := FileRef{ID: id, Kind: kind}
	if i, again := w.seen[key]; again {
		w.refs[i].Uses++
		return nil
	}
	w.seen[key] = len(w.refs)
	at := wire.JoinPath(path)
	// Quotations are counted apart: a long conversation must not be locked by the
	// files that it made.
	if kind == RefQuoted {
		w.quoted++
	} else {
		w.distinct[id] = true
	}
	switch {
	case len(w.distinct) > MaxReferences:
		return wire.Invalid("%s: a request may refer to at most %d files.", at, MaxReferences)
	case w.quoted > MaxQuoted:
		return wire.Invalid("%s: a request may quote at most %d output files.", at, MaxQuoted)
	}
	w.refs = append(w.refs, FileRef{ID: id, Path: at, Kind: kind, Uses: 1})
	return nil
}

// likeAnID tells what may be an unknown id from what is none.
func likeAnID(s string) bool {
	return len(s) <= 256 && !strings.ContainsFunc(s, unicode.IsControl)
}

// opaque reports whether the member holds application data that the server
// never resolves.
func opaque(holder *Node, name string, path []string) bool {
	switch name {
	case "input":
		t := holder.Type()
		return t == "tool_use" || t == "server_tool_use" || t == "mcp_tool_use"
	case "input_schema", "input_examples":
		return len(path) == 2 && path[0] == "tools"
	case "output_config", "output_format", "metadata":
		return len(path) == 0
	}
	return false
}

// ContainerRef is the container field of a request.
type ContainerRef struct {
	ID     string // "" = none named
	Skills []*Node
}

// Container reads the container field: a string, an object with id and skills,
// or null. An empty string is refused.
func (r *Request) Container() (ContainerRef, error) {
	c := r.Root.Get("container")
	switch {
	case c.IsNull():
		return ContainerRef{}, nil
	case c.Is(String):
		if c.Str() == "" {
			return ContainerRef{}, wire.Invalid("container: the id is empty; leave the field out for a new container.")
		}
		return ContainerRef{ID: c.Str()}, nil
	case !c.Is(Object):
		return ContainerRef{}, wire.Invalid("container: a container id, an object or null is required.")
	}
	ref := ContainerRef{Skills: c.Get("skills").Elems()}
	if s := c.Get("skills"); !s.IsNull() && !s.Is(Array) {
		return ContainerRef{}, wire.Invalid("container.skills: an array is required.")
	}
	id := c.Get("id")
	if id.IsNull() {
		return ref, nil
	}
	if id.Str() == "" {
		return ContainerRef{}, wire.Invalid("container.id: a container id is required; leave the field out for a new container.")
	}
	ref.ID = id.Str()
	return ref, nil
}
