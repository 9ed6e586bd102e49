package airlock_test

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock"
)

// part is one of a form: its name, the name of its file, its type, its content.
type part struct{ name, filename, kind, content string }

func parts(t *testing.T, r request) []part {
	t.Helper()
	_, params, err := mime.ParseMediaType(r.header.Get("content-type"))
	if err != nil {
		t.Fatal(err)
	}
	form := multipart.NewReader(bytes.NewReader(r.body), params["boundary"])
	var got []part
	for {
		p, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(p)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, part{p.FormName(), p.FileName(), p.Header.Get("content-type"), string(b)})
	}
}

// onlyOnce hides that a reader could be read again.
type onlyOnce struct{ io.Reader }

func TestUploadIsAFormWithTheExpiryFirst(t *testing.T) {
	t.Parallel()
	g := newGateway(t, plain(200, file("file_1"), nil), plain(200, file("file_2"), nil))
	f := g.files(t)
	got, err := f.Upload(t.Context(), strings.NewReader("a,b\n"), airlock.UploadOptions{Filename: `ü "q".csv`, MIMEType: "text/csv", ExpiresIn: 2 * time.Hour})
	if err != nil || got.ID != "file_1" || got.Filename != "a.txt" || got.SizeBytes != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := f.Upload(t.Context(), onlyOnce{strings.NewReader("x")}, airlock.UploadOptions{Filename: "x"}); err != nil {
		t.Fatal(err)
	}
	sent := g.requests(t, 2)
	if sent[0].method != "POST" || sent[0].uri != "/api/proxy/anthropic/v1/files" {
		t.Errorf("%s %s", sent[0].method, sent[0].uri)
	}
	want := []part{{"expires_in_seconds", "", "", "7200"}, {"file", `ü "q".csv`, "text/csv", "a,b\n"}}
	if got := parts(t, sent[0]); !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
	if got := parts(t, sent[1]); !slices.Equal(got, []part{{"file", "x", "application/octet-stream", "x"}}) {
		t.Errorf("sent %q", got)
	}
	if sent[0].length != int64(len(sent[0].body)) || sent[1].length != -1 {
		t.Errorf("declared %d and %d bytes, want the size where it is known", sent[0].length, sent[1].length)
	}
}

func TestUploadStreams(t *testing.T) {
	t.Parallel()
	first := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		form, err := r.MultipartReader()
		if err != nil {
			t.Error(err)
			return
		}
		p, err := form.NextPart()
		if err != nil {
			t.Error(err)
			return
		}
		b := make([]byte, 5)
		if _, err := io.ReadFull(p, b); err != nil {
			t.Error(err)
		}
		first <- string(b)
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		plain(200, file("file_1"), nil)(w, request{})
	}))
	defer server.Close()
	f, err := airlock.NewFiles(airlock.Env{BaseURL: server.URL, OwnerJWT: "jwt"})
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	go func() {
		io.WriteString(w, "begin")
		// The end is written when the server has the beginning. A client that collects everything first waits for good.
		io.WriteString(w, "end of "+<-first)
		w.Close()
	}()
	if _, err := f.Upload(t.Context(), r, airlock.UploadOptions{Filename: "live.log"}); err != nil {
		t.Fatal(err)
	}
}

func TestUploadIsSentAgainOnlyIfItCanBeReadAgain(t *testing.T) {
	t.Parallel()
	g := newGateway(t, refuse(529, "overloaded", ""), plain(200, file("file_1"), nil), refuse(529, "overloaded", ""))
	f := g.files(t)
	path := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(path, []byte("header|content"), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := in.Seek(7, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Upload(t.Context(), in, airlock.UploadOptions{Filename: "in"}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Upload(t.Context(), onlyOnce{strings.NewReader("x")}, airlock.UploadOptions{Filename: "x"}); err == nil {
		t.Error("what can be read once was sent twice")
	}
	sent := g.requests(t, 3)
	for _, r := range sent[:2] {
		if got := parts(t, r); len(got) != 1 || got[0].content != "content" {
			t.Errorf("an attempt sent %q, want the content from where the file stood", got)
		}
	}
}

func TestUploadOfAPipeThatCannotSeek(t *testing.T) {
	t.Parallel()
	g := newGateway(t, plain(200, file("file_1"), nil))
	r, w, err := os.Pipe() // has the methods of a file
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w.WriteString("piped")
	w.Close()
	if _, err := g.files(t).Upload(t.Context(), r, airlock.UploadOptions{Filename: "x"}); err != nil {
		t.Fatal(err)
	}
	if got := parts(t, g.requests(t, 1)[0]); got[0].content != "piped" {
		t.Errorf("sent %q", got)
	}
}

func TestUploadRefusesWhatNoServerWouldTake(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for want, o := range map[string]airlock.UploadOptions{
		"no name":      {},
		"MIME type":    {Filename: "a", MIMEType: "text/plain\r\nx-evil: 1"},
		"whole number": {Filename: "a", ExpiresIn: 1500 * time.Millisecond},
		"in -1s":       {Filename: "a", ExpiresIn: -time.Second},
	} {
		if _, err := g.files(t).Upload(t.Context(), strings.NewReader("x"), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want something about %q", o, err, want)
		}
	}
	g.requests(t, 0)
}

func TestFilesAreListedGottenDownloadedDeleted(t *testing.T) {
	t.Parallel()
	g := newGateway(t,
		plain(200, `{"data":[`+file("file_1")+`],"next_page":"page_2"}`, nil),
		plain(200, file("file_1"), nil),
		plain(200, "%PDF", map[string]string{"content-type": "application/pdf", "content-disposition": `attachment; filename="a.pdf"`}),
		plain(200, `{"id":"file_1","type":"file_deleted"}`, nil),
		refuse(404, "Not found", ""),
	)
	f := g.files(t)
	files, next, err := f.List(t.Context(), 7, "page_1")
	if err != nil || len(files) != 1 || files[0].ID != "file_1" || next != "page_2" {
		t.Errorf("list: %v, %q, %v", files, next, err)
	}
	if got, err := f.Get(t.Context(), "file_1"); err != nil || !got.Downloadable || !got.ExpiresAt.IsZero() {
		t.Errorf("get: %+v, %v", got, err)
	}
	res, err := f.Download(t.Context(), "file_1")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err != nil || string(b) != "%PDF" || res.Header.Get("content-type") != "application/pdf" {
		t.Errorf("download: %q, %v, %v", b, res.Header, err)
	}
	if err := f.Delete(t.Context(), "file_1"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := f.Delete(t.Context(), "file_1"); !airlock.IsNotFound(err) {
		t.Errorf("second delete: %v", err)
	}
	want := []string{
		"GET /api/proxy/anthropic/v1/files?limit=7&page=page_1", "GET /api/proxy/anthropic/v1/files/file_1",
		"GET /api/proxy/anthropic/v1/files/file_1/content", "DELETE /api/proxy/anthropic/v1/files/file_1", "DELETE /api/proxy/anthropic/v1/files/file_1",
	}
	for i, r := range g.requests(t, len(want)) {
		if got := r.method + " " + r.uri; got != want[i] {
			t.Errorf("request %d was %s, want %s", i, got, want[i])
		}
	}
}

func TestAllGoesThroughEveryPageOnce(t *testing.T) {
	t.Parallel()
	two := plain(200, `{"data":[`+file("file_1")+`,`+file("file_2")+`],"next_page":"page_2"}`, nil)
	last := plain(200, `{"data":[`+file("file_3")+`],"next_page":null}`, nil)
	g := newGateway(t, two, last, two, two, refuse(400, "invalid page token", ""), two, two)
	f := g.files(t)
	all := func(stopAt string) (ids []string, failure error) {
		for file, err := range f.All(t.Context()) {
			if err != nil {
				failure = err
				continue
			}
			if ids = append(ids, file.ID); file.ID == stopAt {
				break
			}
		}
		return ids, failure
	}
	if got, err := all(""); err != nil || !slices.Equal(got, []string{"file_1", "file_2", "file_3"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := all("file_1"); err != nil || len(got) != 1 {
		t.Errorf("after a break: %v, %v", got, err)
	}
	if got, err := all(""); err == nil || len(got) != 2 {
		t.Errorf("with a page that fails: %v, %v", got, err)
	}
	if got, err := all(""); err == nil || len(got) != 2 {
		t.Errorf("with a page that is its own next one: %v, %v", got, err)
	}
	if got := g.requests(t, 7)[1].uri; !strings.HasSuffix(got, "?limit=100&page=page_2") {
		t.Errorf("the second page was asked for with %s", got)
	}
}
