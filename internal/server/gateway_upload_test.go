package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// storedBlobs counts what lies in the blob store, so that a refused upload can be seen to leave nothing.
func (g *gatewayServer) storedBlobs() int {
	g.t.Helper()
	n := 0
	err := filepath.WalkDir(filepath.Join(g.cfg.Data, "blobs"), func(_ string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			n++
		}
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return n
}

// endless is a body without a length that does not end by itself.
type endless struct{ head io.Reader }

func (e *endless) Read(p []byte) (int, error) {
	if n, err := e.head.Read(p); err == nil {
		return n, nil
	}
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestS65UploadsHaveALimitThatIsCountedAndNotBelieved(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	exact := g.post(u, part{"file", "a.bin", "application/pdf", strings.Repeat("x", 32<<20)})
	var meta struct {
		Size int64 `json:"size_bytes"`
	}
	exact.decode(t, &meta)
	if exact.status != 200 || meta.Size != 32<<20 {
		t.Errorf("32 MiB exactly: %d %s", exact.status, exact.body)
	}
	before := g.storedBlobs()
	g.refused("one byte more", g.post(u, part{"file", "a.bin", "application/pdf", strings.Repeat("x", 32<<20+1)}), 413, "")
	head := "--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n"
	a := g.call(u, "POST", proxy+"/files", io.Reader(&endless{strings.NewReader(head)}), "content-type", "multipart/form-data; boundary=edge")
	g.refused("endless", a, 413, "")
	// The length that is declared is the end of what is read; more is another request.
	status, _ := g.raw(u, "POST "+proxy+"/files HTTP/1.1", "Host: x", "x-auth-token: TOKEN", "x-app-id: APP", "x-app-identity-token: IDENTITY",
		"Content-Type: multipart/form-data; boundary=edge", "Content-Length: 90", "Connection: close", "", head+strings.Repeat("x", 1<<10))
	if !strings.HasPrefix(status, "400") {
		t.Errorf("declared small, sent large: %s", status)
	}
	if n := g.storedBlobs(); n != before {
		t.Errorf("%d blobs are stored, %d were before", n, before)
	}
	var list struct {
		Data []any `json:"data"`
	}
	g.call(u, "GET", proxy+"/files", nil).decode(t, &list)
	if len(list.Data) != 1 {
		t.Errorf("%d files are listed", len(list.Data))
	}
}

func TestS66NamesAreTheirLastComponent(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	for sent, want := range map[string]string{
		"../../etc/passwd": "passwd", `..\..\x`: "x", "/etc/shadow": "shadow", `C:\dir\a.txt`: "a.txt", "..": "unnamed.txt", ".": "unnamed.txt",
		"dir/": "unnamed.txt", "a\u202etxt.exe": "a\u202etxt.exe", ".bashrc": ".bashrc",
	} {
		a := g.post(u, part{"file", strings.ReplaceAll(sent, `\`, `\\`), "text/plain", "x"})
		if a.status != 200 || a.member("filename") != want {
			t.Errorf("%q became %d %q, want %q", sent, a.status, a.member("filename"), want)
		}
	}
	for _, name := range []string{"a%0Ab", "a%0D%0Ab", strings.Repeat("x", 4<<10), "a<b", "a|b"} {
		a := g.post(u, part{"file", name, "text/plain", "x"})
		g.refused(name[:3], a, 400, "")
		if !strings.Contains(a.failure().Error.Message, "filename") {
			t.Errorf("%q: told %q", name[:3], a.failure().Error.Message)
		}
	}
	if a := g.post(u, part{"file", "", "text/plain", "x"}); a.status != 200 || a.member("filename") != "unnamed.txt" {
		t.Errorf("no name: %d %s", a.status, a.body)
	}
}

func TestS68NameInjectsNoHeader(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	for _, name := range []string{"a\"\r\nSet-Cookie: x", "a\nb", "\x00", `a";filename="b`, "ä €.txt", "a%22b.txt"} {
		id := g.made(g.a, "u", "user", name, "x")
		a := g.call(u, "GET", proxy+"/files/"+id+"/content", nil)
		d := a.header.Values("Content-Disposition")
		if a.status != 200 || len(d) != 1 || !strings.HasPrefix(d[0], `attachment; filename="`) || strings.Count(d[0], `"`) != 2 || a.header.Get("Set-Cookie") != "" {
			t.Errorf("%q: %d %q", name, a.status, d)
		}
	}
}

func TestS69PagesAreNotShownInPlace(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	for name, content := range map[string]string{"a.html": "<html><script>alert(1)</script>", "a.svg": `<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>`} {
		id := g.made(g.a, "u", "user", name, content)
		a := g.call(u, "GET", proxy+"/files/"+id+"/content", nil)
		for h, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox", "Cache-Control": "private, no-store",
			"Content-Length": fmt.Sprint(len(content)),
		} {
			if a.header.Get(h) != want {
				t.Errorf("%s: %s is %q, want %q", name, h, a.header.Get(h), want)
			}
		}
		if !strings.HasPrefix(a.header.Get("Content-Disposition"), "attachment") || a.body != content {
			t.Errorf("%s: %v %q", name, a.header, a.body)
		}
	}
}

func TestS70BrokenFormsAreRefused(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	before := g.storedBlobs()
	parts := make([]part, 10_000)
	for i := range parts {
		parts[i] = part{"expires_in_seconds", "", "", "3600"}
	}
	file := part{"file", "a.txt", "text/plain", "x"}
	for name, a := range map[string]answer{
		"10,000 parts":     g.post(u, parts...),
		"two files":        g.post(u, file, file),
		"no file":          g.post(u, part{"expires_in_seconds", "", "", "3600"}),
		"another part":     g.post(u, file, part{"purpose", "", "", "x"}),
		"a part unnamed":   g.post(u, part{"", "a.txt", "text/plain", "x"}),
		"scope in a part":  g.post(u, file, part{"x-deepspace-sandbox-scope", "", "", "app"}),
		"token in a part":  g.post(u, file, part{"token", "", "", "x"}),
		"nested multipart": g.post(u, part{"files", "", "multipart/mixed; boundary=b", "--b\r\n\r\nx\r\n--b--"}),
	} {
		g.refused(name, a, 400, "")
	}
	long := "--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\nX-Long: " + strings.Repeat("x", 1<<20) + "\r\n\r\nx\r\n--edge--\r\n"
	whole := "--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nx\r\n--edge--\r\n"
	for name, r := range map[string]struct{ contentType, body string }{
		"1 MiB of part header": {"multipart/form-data; boundary=edge", long},
		"no boundary":          {"multipart/form-data", whole},
		"another boundary":     {"multipart/form-data; boundary=other", whole},
		"another type":         {"application/json", `{"file":"x"}`},
		"cut off":              {"multipart/form-data; boundary=edge", whole[:len(whole)-12]},
		"empty":                {"multipart/form-data; boundary=edge", ""},
	} {
		g.refused(name, g.call(u, "POST", proxy+"/files", io.Reader(strings.NewReader(r.body)), "content-type", r.contentType), 400, "")
	}
	if n := g.storedBlobs(); n != before {
		t.Errorf("%d blobs are stored, %d were before", n, before)
	}
}

func TestS71CompressedBodiesAreRefused(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	for _, encoding := range []string{"gzip", "deflate", "br", "zstd", "gzip, gzip"} {
		body, contentType := form(t, part{"file", "a.txt", "text/plain", "x"})
		g.refused(encoding, g.call(u, "POST", proxy+"/files", io.Reader(body), "content-type", contentType, "content-encoding", encoding), 415, "")
		g.refused(encoding, g.call(u, "POST", proxy+"/messages", message(textBlock, ""), "content-encoding", encoding), 415, "")
	}
}

func TestS75UploadsAreNotDownloadedAndExpiredOnesAreGone(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u, v := g.user(g.a, "u"), g.user(g.a, "v")
	upload, output := g.put(u, "a.txt", "x"), g.made(g.a, "u", "user", "b.txt", "x")
	var meta struct {
		Downloadable bool       `json:"downloadable"`
		CreatedAt    time.Time  `json:"created_at"`
		ExpiresAt    *time.Time `json:"expires_at"`
	}
	a := g.call(u, "GET", proxy+"/files/"+upload, nil)
	a.decode(t, &meta)
	if meta.Downloadable || meta.ExpiresAt == nil || meta.ExpiresAt.Sub(meta.CreatedAt) != 30*24*time.Hour {
		t.Errorf("an upload is %s", a.body)
	}
	g.refused("an upload", g.call(u, "GET", proxy+"/files/"+upload+"/content", nil), 400, "file_not_downloadable")
	g.notFound("the upload of another", g.call(v, "GET", proxy+"/files/"+upload+"/content", nil))
	a = g.call(u, "GET", proxy+"/files/"+output, nil)
	meta.ExpiresAt = nil
	a.decode(t, &meta)
	if !meta.Downloadable || meta.ExpiresAt != nil || !strings.Contains(a.body, `"expires_at":null`) {
		t.Errorf("an output is %s", a.body)
	}
	g.advance(31 * 24 * time.Hour)
	u, v = g.user(g.a, "u"), g.user(g.a, "v")
	use := func(w who) []answer {
		return []answer{
			g.call(w, "GET", proxy+"/files/"+upload, nil), g.call(w, "GET", proxy+"/files/"+upload+"/content", nil),
			g.say(w, message(uploadBlock(upload), `,"tools":[`+codeTool+`]`)),
		}
	}
	for i := range use(u) {
		g.refused("an expired upload", use(u)[i], 404, "file_expired")
		g.notFound("the expired upload of another", use(v)[i])
	}
	if a := g.call(u, "GET", proxy+"/files", nil); strings.Contains(a.body, upload) || !strings.Contains(a.body, output) {
		t.Errorf("listed: %s", a.body)
	}
	if a := g.call(u, "GET", proxy+"/files/"+output+"/content", nil); a.status != 200 || a.body != "x" {
		t.Errorf("an output ended by itself: %d %s", a.status, a.body)
	}
	g.ok("delete", g.call(u, "DELETE", proxy+"/files/"+output, nil))
	g.notFound("a second time", g.call(u, "DELETE", proxy+"/files/"+output, nil))
}

func TestS75DownloadDuringDeletionIsWholeOrNotFound(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	content := strings.Repeat("0123456789abcdef", 64<<10)
	for range 10 {
		id := g.made(g.a, "u", "user", "b.txt", content)
		got := make(chan answer, 2)
		for range cap(got) {
			go func() { got <- g.call(u, "GET", proxy+"/files/"+id+"/content", nil) }()
		}
		g.ok("delete", g.call(u, "DELETE", proxy+"/files/"+id, nil))
		for range cap(got) {
			if a := <-got; a.status != 404 && (a.status != 200 || a.body != content) {
				t.Errorf("a download during the deletion: %d with %d bytes", a.status, len(a.body))
			}
		}
	}
}

func TestS76BadExpiriesAreRefused(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	file := part{"file", "a.txt", "text/plain", "x"}
	expiry := func(v string) part { return part{"expires_in_seconds", "", "", v} }
	before := g.storedBlobs()
	for _, v := range []string{"3599", "7776001", "3600.5", "0x1000", "", "0", "-1", "1e4", "abc", " 3600", "3600 ", "+3600", "99999999999999999999999"} {
		g.refused(v+" after the file", g.post(u, file, expiry(v)), 400, "")
		g.refused(v+" before the file", g.post(u, expiry(v), file), 400, "")
	}
	g.refused("repeated", g.post(u, expiry("3600"), file, expiry("3600")), 400, "")
	if n := g.storedBlobs(); n != before {
		t.Errorf("%d blobs are stored, %d were before", n, before)
	}
	for v, want := range map[string]time.Duration{"3600": time.Hour, "7776000": 90 * 24 * time.Hour} {
		for _, parts := range [][]part{{file, expiry(v)}, {expiry(v), file}} {
			var meta struct {
				CreatedAt time.Time `json:"created_at"`
				ExpiresAt time.Time `json:"expires_at"`
			}
			g.post(u, parts...).decode(t, &meta)
			if meta.ExpiresAt.Sub(meta.CreatedAt) != want {
				t.Errorf("%s seconds became %s", v, meta.ExpiresAt.Sub(meta.CreatedAt))
			}
		}
	}
}

func TestS77ConditionsTellNothingOfAForeignFile(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u, v := g.user(g.a, "u"), g.user(g.a, "v")
	id := g.made(g.a, "u", "user", "b.txt", "0123456789")
	own := g.call(u, "GET", proxy+"/files/"+id+"/content", nil)
	etag := own.header.Get("Etag")
	for _, h := range [][]string{{"range", "bytes=0-3"}, {"range", "bytes=100-"}, {"if-none-match", etag}, {"if-none-match", "*"}, {"range", "bytes=0-3", "if-range", etag}} {
		a := g.call(v, "GET", proxy+"/files/"+id+"/content", nil, h...)
		g.notFound(strings.Join(h, " "), a)
		for _, name := range []string{"Content-Range", "Etag", "Accept-Ranges", "Content-Disposition", "Last-Modified"} {
			if a.header.Get(name) != "" {
				t.Errorf("%v: %s is %q", h, name, a.header.Get(name))
			}
		}
	}
	if a := g.call(u, "GET", proxy+"/files/"+id+"/content", nil, "range", "bytes=2-4"); a.status != 206 || a.body != "234" {
		t.Errorf("one's own: %d %q", a.status, a.body)
	}
	if resp := g.do("HEAD", proxy+"/files/"+id+"/content", "", nil, "x-auth-token", v.token, "x-app-id", v.app.id, "x-app-identity-token", v.app.identity); resp.StatusCode != 404 {
		t.Errorf("HEAD: %d", resp.StatusCode)
	}
}

// The files client sends neither a version nor a beta, older SDKs send both: each gets one superset.
func TestFilesOfTheGatewayNeedNoVersionAndAnswerOneShape(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	for _, h := range [][]string{
		nil,
		{"anthropic-version", "2023-06-01", "anthropic-beta", "files-api-2025-04-14"},
		{"anthropic-version", "2026-10-21"},
		{"anthropic-version", "2023-06-01", "anthropic-beta", "something-new-2027-01-01"},
	} {
		body, contentType := form(t, part{"file", "a.txt", "text/plain", "x"})
		a := g.call(u, "POST", proxy+"/files", io.Reader(body), append([]string{"content-type", contentType}, h...)...)
		g.ok("upload", a)
		got := g.call(u, "GET", proxy+"/files/"+a.member("id"), nil, h...)
		for _, shape := range []answer{a, got} {
			var keys map[string]json.RawMessage
			shape.decode(t, &keys)
			for _, k := range []string{"id", "type", "filename", "mime_type", "size_bytes", "created_at", "downloadable", "expires_at"} {
				if keys[k] == nil {
					t.Errorf("with %v %s is missing in %s", h, k, shape.body)
				}
			}
		}
		list := g.call(u, "GET", proxy+"/files?limit=1", nil, h...)
		for _, k := range []string{`"data"`, `"next_page"`, `"has_more"`, `"first_id"`, `"last_id"`, `"expires_at"`} {
			if !strings.Contains(list.body, k) {
				t.Errorf("with %v the list has no %s: %s", h, k, list.body)
			}
		}
		if d := g.call(u, "DELETE", proxy+"/files/"+a.member("id"), nil, h...); strings.TrimSpace(d.body) != `{"id":"`+a.member("id")+`","type":"file_deleted"}` {
			t.Errorf("deleted: %d %s", d.status, d.body)
		}
	}
	empty := g.call(g.user(g.a, "nobody"), "GET", proxy+"/files", nil)
	if !bytes.Contains([]byte(empty.body), []byte(`"data":[]`)) || empty.status != http.StatusOK {
		t.Errorf("an empty list is %s", empty.body)
	}
}
