package file_test

import (
	"bytes"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

var requestID = regexp.MustCompile(`req_01\w+`)

// TestForeignFileEqualsMissingFile goes over every route and compares whole answers.
func TestForeignFileEqualsMissingFile(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		private := decode(t, x.send(form(part(`name="file"; filename="a"`, "", "x")), "Test-User", "u"), http.StatusOK)["id"].(string)
		deleted := string(x.output("gone", []byte("x")).ID)
		if err := x.files.Delete(t.Context(), x.app, file.ID(deleted)); err != nil {
			t.Fatal(err)
		}
		callers := map[string][]string{
			"other app": {"Test-App", "two"}, "same user of another app": {"Test-App", "two", "Test-User", "u"},
			"other user": {"Test-User", "v"}, "owner of the app": {}, "other user asking for app scope": {"Test-User", "v", "Test-Scope", "app"},
		}
		for _, route := range []struct{ method, suffix string }{{"GET", ""}, {"GET", "/content"}, {"HEAD", "/content"}, {"DELETE", ""}} {
			var want string
			for name, headers := range callers {
				for _, id := range []string{"file_01nosuch", private, deleted, private[:len(private)-1] + "z", "container_01x", "file_", "x"} {
					r := x.do(route.method, "/v1/files/"+id+route.suffix, nil, append(headers, "Range", "bytes=0-0", "If-None-Match", "*")...)
					r.header.Del("Date")
					got := requestID.ReplaceAllString(strings.Join([]string{http.StatusText(r.status), string(r.body)}, "\n"), "req")
					for _, h := range []string{"Content-Type", "Content-Length", "Cache-Control", "X-Should-Retry", "Etag", "Content-Range"} {
						got += "\n" + h + ": " + r.header.Get(h)
					}
					if want == "" {
						want = got
						if r.status != http.StatusNotFound {
							t.Fatalf("status %d", r.status)
						}
					}
					if got != want {
						t.Errorf("%s %s%s as %s:\n%s\nwant\n%s", route.method, id, route.suffix, name, got, want)
					}
				}
			}
		}
		if r := x.do("GET", "/v1/files/"+private, nil, "Test-User", "u"); r.status != http.StatusOK {
			t.Errorf("its owner gets %d", r.status)
		}
	})
}

func TestAppScopeIsSharedInsideTheAppOnly(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		id := decode(t, x.send(form(part(`name="file"; filename="a"`, "", "x")), "Test-User", "u", "Test-Scope", "app"), http.StatusOK)["id"].(string)
		for _, tt := range []struct {
			headers []string
			status  int
		}{
			{[]string{"Test-User", "u"}, 200},
			{[]string{"Test-User", "v"}, 200},
			{nil, 200},
			{[]string{"Test-App", "two"}, 404},
			{[]string{"Test-App", "two", "Test-User", "u", "Test-Scope", "app"}, 404},
		} {
			if r := x.do("GET", "/v1/files/"+id, nil, tt.headers...); r.status != tt.status {
				t.Errorf("%v: %d, want %d", tt.headers, r.status, tt.status)
			}
			l := decode(t, x.do("GET", "/v1/files", nil, tt.headers...), http.StatusOK)
			if n := len(l["data"].([]any)); (n == 1) != (tt.status == 200) {
				t.Errorf("%v: lists %d", tt.headers, n)
			}
		}
		if r := x.do("DELETE", "/v1/files/"+id, nil, "Test-User", "v"); r.status != http.StatusOK {
			t.Errorf("delete by another user of the app: %d", r.status)
		}
	})
}

func TestAuthorize(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		put := func(c tenant.Caller, expires *int64) file.ID {
			f, err := x.files.Upload(t.Context(), c, file.UploadParams{Filename: "a", Body: bytes.NewReader(nil), ExpiresIn: expires})
			if err != nil {
				t.Fatal(err)
			}
			return f.ID
		}
		u, v, hour := x.app, x.app, int64(3600)
		u.UserID, v.UserID = "u", "v"
		mine, gone, old, foreign := put(u, nil), put(u, nil), put(u, &hour), put(v, nil)
		if err := x.files.Delete(t.Context(), u, gone); err != nil {
			t.Fatal(err)
		}
		x.advance(2 * 3600e9)
		for _, tt := range []struct {
			name        string
			ids, quoted []file.ID
			want        string
		}{
			{"own", []file.ID{mine, mine}, nil, ""},
			{"nothing", nil, nil, ""},
			{"unknown", []file.ID{mine, "file_01nosuch"}, nil, "Not found"},
			{"not an id", []file.ID{"x\x00'"}, nil, "Not found"},
			{"foreign", []file.ID{mine, foreign}, nil, "Not found"},
			{"deleted", []file.ID{gone}, nil, "Not found"},
			{"expired", []file.ID{old}, nil, "expired"},
			{"the first bad one decides", []file.ID{old, foreign}, nil, "expired"},
			{"the first bad one decides, other order", []file.ID{foreign, old}, nil, "Not found"},
			{"quoted deleted and expired", []file.ID{mine}, []file.ID{gone, old}, ""},
			{"quoted foreign", nil, []file.ID{gone, foreign}, "Not found"},
			{"quoted unknown", nil, []file.ID{"file_01nosuch"}, "Not found"},
			{"quoted and used", []file.ID{gone}, []file.ID{gone}, "Not found"},
		} {
			got, err := x.files.AuthorizeQuoted(t.Context(), u, tt.ids, tt.quoted)
			if tt.want == "" {
				if err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
				for _, id := range append(tt.ids, tt.quoted...) {
					if got[id] == nil || got[id].ID != id {
						t.Errorf("%s: %s is missing", tt.name, id)
					}
				}
				continue
			}
			var we *wire.Error
			if !errors.As(err, &we) || we.HTTPStatus() != http.StatusNotFound || !strings.Contains(we.Message, tt.want) {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
			}
		}
	})
}

func TestCase61NULAndBadTextNeverReachTheDatabase(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		for _, id := range []string{"file_%00", "file_01%ff", "%00", "file_01a%00b", strings.Repeat("a", 5000), "file_01x%2Fcontent"} {
			for _, suffix := range []string{"", "/content"} {
				wantError(t, x.do("GET", "/v1/files/"+id+suffix, nil), http.StatusNotFound, "not_found_error", "", "Not found")
			}
		}
		wantError(t, x.send(form(part(`name="file"; filename*=UTF-8''a%00b`, "", "x"))), http.StatusBadRequest, "invalid_request_error", "", "file: ")
		f := x.output("a\x00b\xed\xa0\x80.txt", []byte("x"))
		if strings.ContainsAny(f.Filename, "\x00\ufffd") {
			t.Errorf("name %q", f.Filename)
		}
		if _, err := x.files.Get(t.Context(), x.app, f.ID); err != nil {
			t.Error(err)
		}
	})
}
