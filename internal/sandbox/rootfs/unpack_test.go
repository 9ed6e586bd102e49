package rootfs

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// entry is one member of a test archive; a zero kind is a file.
type entry struct {
	name, body, link string
	kind             byte
	mode             int64
}

func archive(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{
			Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: e.mode, Size: int64(len(e.body)),
			Uid: os.Getuid(), Gid: os.Getgid(), Format: tar.FormatPAX,
		}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if e.mode == 0 {
			h.Mode = 0o644
			if e.kind == tar.TypeDir {
				h.Mode = 0o755
			}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpackAll unpacks layers into a fresh tree.
func unpackAll(t *testing.T, whiteouts bool, layers ...[]byte) (string, error) {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	u, err := newUnpacker(tree)
	if err != nil {
		t.Fatal(err)
	}
	defer u.root.Close()
	u.whiteouts = whiteouts
	for _, l := range layers {
		if err := u.layer(context.Background(), bytes.NewReader(l)); err != nil {
			return tree, err
		}
	}
	return tree, nil
}

// files maps every path of a tree to its content, link target or "/".
func files(t *testing.T, tree string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == tree {
			return err
		}
		name, err := filepath.Rel(tree, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			all[name] = "/"
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			all[name] = "-> " + target
			return err
		default:
			b, err := os.ReadFile(path)
			all[name] = string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestUnpackKeepsTreesAndDropsDevices(t *testing.T) {
	t.Parallel()
	tree, err := unpackAll(t, false, archive(t,
		entry{name: "./", kind: tar.TypeDir},
		entry{name: "usr/bin/", kind: tar.TypeDir},
		entry{name: "usr/bin/tool", body: "x", mode: 0o4755},
		entry{name: "bin", kind: tar.TypeSymlink, link: "usr/bin"},
		entry{name: "bin/second", body: "y"}, // through the link, inside the tree
		entry{name: "usr/bin/third", kind: tar.TypeLink, link: "/usr/bin/tool"},
		entry{name: "/etc/absolute", body: "z"},
		entry{name: "etc/away", kind: tar.TypeSymlink, link: "/etc/passwd"},
		entry{name: "dev/null", kind: tar.TypeChar},
		entry{name: "run/pipe", kind: tar.TypeFifo},
		entry{name: ".wh.plain", body: "a name like any other in a plain archive"},
	))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"usr": "/", "usr/bin": "/", "usr/bin/tool": "x", "bin": "-> usr/bin", "usr/bin/second": "y", "usr/bin/third": "x",
		"etc": "/", "etc/absolute": "z", "etc/away": "-> /etc/passwd", "dev": "/", "run": "/",
		".wh.plain": "a name like any other in a plain archive",
	}
	if d := cmp.Diff(files(t, tree), want); d != "" {
		t.Error(d)
	}
	info, err := os.Stat(filepath.Join(tree, "usr/bin/tool"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o755 {
		t.Errorf("mode is %v, want 0755 without setuid", info.Mode())
	}
}

func TestUnpackNeverLeavesTheTree(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.MkdirAll(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		entries []entry
	}{
		{"dots in a name", []entry{{name: "../outside/new", body: "x"}}},
		{"dots within a name", []entry{{name: "a/../../outside/new", body: "x"}}},
		{"a file through an absolute link", []entry{{name: "l", kind: tar.TypeSymlink, link: outside}, {name: "l/new", body: "x"}}},
		{"a file through a relative link", []entry{{name: "l", kind: tar.TypeSymlink, link: "../../outside"}, {name: "l/new", body: "x"}}},
		{"a folder through a link", []entry{{name: "l", kind: tar.TypeSymlink, link: outside}, {name: "l/d/", kind: tar.TypeDir}}},
		{"a link through a link", []entry{{name: "l", kind: tar.TypeSymlink, link: outside}, {name: "l/new", kind: tar.TypeSymlink, link: "x"}}},
		{"a hard link with dots", []entry{{name: "h", kind: tar.TypeLink, link: "../outside/secret"}}},
		{"a hard link through a link", []entry{{name: "l", kind: tar.TypeSymlink, link: outside}, {name: "h", kind: tar.TypeLink, link: "l/secret"}}},
		{"a whiteout with dots", []entry{{name: "../outside/.wh.secret"}}},
		{"a whiteout through a link", []entry{{name: "l", kind: tar.TypeSymlink, link: outside}, {name: "l/.wh.secret"}}},
		{"an opaque folder through a link", []entry{{name: "l", kind: tar.TypeSymlink, link: outside}, {name: "l/.wh..wh..opq"}}},
	} {
		if _, err := unpackAll(t, true, archive(t, tc.entries...)); err == nil {
			t.Errorf("%s: unpacked without an error", tc.name)
		}
	}
	if d := cmp.Diff(files(t, outside), map[string]string{"secret": "s"}); d != "" {
		t.Errorf("outside the tree: %s", d)
	}
}

func TestAFileReplacesALinkInsteadOfWritingThroughIt(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "host")
	if err := os.WriteFile(outside, []byte("host"), 0o644); err != nil {
		t.Fatal(err)
	}
	tree, err := unpackAll(t, false, archive(t,
		entry{name: "l", kind: tar.TypeSymlink, link: outside}, entry{name: "l", body: "image", mode: 0o600}))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(files(t, tree), map[string]string{"l": "image"}); d != "" {
		t.Error(d)
	}
	if b, err := os.ReadFile(outside); err != nil || string(b) != "host" {
		t.Errorf("the host's file is %q, %v", b, err)
	}
}

func TestATornArchiveIsAnError(t *testing.T) {
	t.Parallel()
	whole := archive(t, entry{name: "a", body: strings.Repeat("x", 4096)})
	if _, err := unpackAll(t, false, whole[:2000]); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

func TestLayersHideWhatIsBelow(t *testing.T) {
	t.Parallel()
	low := archive(t, entry{name: "d/a", body: "1"}, entry{name: "d/b", body: "1"}, entry{name: "e/c", body: "1"},
		entry{name: "e/sub/x", body: "1"}, entry{name: "f", body: "1"}, entry{name: "g/x", body: "1"})
	high := archive(t, entry{name: "d/.wh.a"}, entry{name: "e/new", body: "2"}, entry{name: "e/.wh..wh..opq"},
		entry{name: "f/", kind: tar.TypeDir}, entry{name: "g", body: "2"}, entry{name: "d/.wh.missing"})
	tree, err := unpackAll(t, true, low, high)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"d": "/", "d/b": "1", "e": "/", "e/new": "2", "f": "/", "g": "2"}
	if d := cmp.Diff(files(t, tree), want); d != "" {
		t.Error(d)
	}
}

// ociLayout writes a layout with one image of the given layers.
func ociLayout(t *testing.T, platform *v1.Platform, layers ...[]byte) string {
	t.Helper()
	img := empty.Image
	for _, l := range layers {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		if _, err := z.Write(l); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		next, err := mutate.AppendLayers(img, static.NewLayer(packed.Bytes(), types.OCILayer))
		if err != nil {
			t.Fatal(err)
		}
		img = next
	}
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	var options []layout.Option
	if platform != nil {
		options = append(options, layout.WithPlatform(*platform))
	}
	if err := p.AppendImage(img, options...); err != nil {
		t.Fatal(err)
	}
	return dir
}

func unpackOCI(t *testing.T, dir string) (string, error) {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	_, err := unpackAny(context.Background(), dir, tree, func(Progress) {})
	return tree, err
}

func TestOCILayoutIsUnpackedLayerByLayer(t *testing.T) {
	t.Parallel()
	dir := ociLayout(t, nil, archive(t, entry{name: "a", body: "1"}, entry{name: "b", body: "1"}),
		archive(t, entry{name: ".wh.a"}, entry{name: "b", body: "2"}))
	tree, err := unpackOCI(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(files(t, tree), map[string]string{"b": "2"}); d != "" {
		t.Error(d)
	}
}

func TestATarOfAnOCILayoutIsUnpackedToo(t *testing.T) {
	t.Parallel()
	dir := ociLayout(t, nil, archive(t, entry{name: "a", body: "1"}))
	var entries []entry
	for name, body := range files(t, dir) {
		if body != "/" {
			entries = append(entries, entry{name: name, body: body})
		}
	}
	packed := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(packed, archive(t, entries...), 0o644); err != nil {
		t.Fatal(err)
	}
	tree, err := unpackOCI(t, packed)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(files(t, tree), map[string]string{"a": "1"}); d != "" {
		t.Error(d)
	}
}

func TestOCIImageOfAnotherMachineIsNotFound(t *testing.T) {
	t.Parallel()
	dir := ociLayout(t, &v1.Platform{OS: "linux", Architecture: "s390x"}, archive(t, entry{name: "a"}))
	if _, err := unpackOCI(t, dir); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

func TestOCIBlobsAreCheckedAgainstTheirDigests(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"layer", "manifest"} {
		dir := ociLayout(t, nil, archive(t, entry{name: "a", body: "1"}))
		blobs, err := filepath.Glob(filepath.Join(dir, "blobs/sha256/*"))
		if err != nil || len(blobs) != 3 {
			t.Fatalf("blobs %v, %v", blobs, err)
		}
		for _, path := range blobs {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case what == "layer" && b[0] == 0x1f: // another valid archive under the same name
				var packed bytes.Buffer
				z := gzip.NewWriter(&packed)
				if _, err := z.Write(archive(t, entry{name: "evil", body: "1"})); err != nil {
					t.Fatal(err)
				}
				if err := z.Close(); err != nil {
					t.Fatal(err)
				}
				b = packed.Bytes()
			case what == "manifest" && bytes.Contains(b, []byte(`"layers"`)):
				b = append(b, ' ')
			default:
				continue
			}
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := unpackOCI(t, dir); !errors.Is(err, ErrUnsafeArchive) {
			t.Errorf("changed %s: %v, want ErrUnsafeArchive", what, err)
		}
	}
}

func TestUnknownCompressionIsNamed(t *testing.T) {
	t.Parallel()
	for _, head := range []string{"\xfd7zXZ\x00rest", "BZh9rest"} {
		if _, err := decompress(strings.NewReader(head)); !errors.Is(err, ErrUnsafeArchive) {
			t.Errorf("%q: %v", head, err)
		}
	}
}
