package file_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	legacy  = "files-api-2025-04-14"
	managed = "managed-agents-2026-04-01"
	later   = "managed-agents-2026-08-01"
)

// many makes n files, a second apart, and gives their ids, newest first.
func (x *fixture) many(n int) []string {
	x.t.Helper()
	ids := make([]string, n)
	for i := range n {
		x.advance(time.Second)
		ids[n-1-i] = string(x.output(fmt.Sprintf("f%d", i), []byte("x")).ID)
	}
	return ids
}

func idsOf(v map[string]any) []string {
	out := []string{}
	for _, d := range v["data"].([]any) {
		out = append(out, d.(map[string]any)["id"].(string))
	}
	return out
}

func keysOf(v map[string]any) map[string]bool {
	out := map[string]bool{}
	for k := range v {
		out[k] = true
	}
	return out
}

func (x *fixture) list(query string, betas ...string) map[string]any {
	x.t.Helper()
	return decode(x.t, x.listReply(query, betas...), http.StatusOK)
}

func (x *fixture) listReply(query string, betas ...string) reply {
	x.t.Helper()
	var headers []string
	for _, b := range betas {
		headers = append(headers, "Anthropic-Beta", b)
	}
	return x.do("GET", "/v1/files?"+query, nil, headers...)
}

func TestShapesDifferByHeader(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		base := []string{"id", "type", "filename", "mime_type", "size_bytes", "created_at", "downloadable"}
		for _, tt := range []struct {
			betas []string
			list  []string
			file  []string
		}{
			{nil, []string{"data", "next_page"}, append(base[:7:7], "expires_at")},
			{[]string{"some-other-2025-01-01"}, []string{"data", "next_page"}, append(base[:7:7], "expires_at")},
			{[]string{legacy}, []string{"data", "has_more", "first_id", "last_id"}, base},
			{[]string{"a-1, " + legacy + ",b-2"}, []string{"data", "has_more", "first_id", "last_id"}, base},
			{[]string{managed}, []string{"data", "next_page", "has_more", "first_id", "last_id"}, append(base[:7:7], "expires_at", "scope")},
			{[]string{managed, legacy}, []string{"data", "has_more", "first_id", "last_id"}, append(base[:7:7], "scope")},
			{[]string{later}, []string{"data", "next_page"}, append(base[:7:7], "expires_at", "scope")},
		} {
			var headers []string
			for _, b := range tt.betas {
				headers = append(headers, "Anthropic-Beta", b)
			}
			want := map[string]bool{}
			for _, k := range tt.file {
				want[k] = true
			}
			up := decode(t, x.send(form(part(`name="file"; filename="a.txt"`, "Content-Type: text/plain", "x")), headers...), http.StatusOK)
			if d := cmp.Diff(want, keysOf(up)); d != "" {
				t.Errorf("%v: upload (-want +got):\n%s", tt.betas, d)
			}
			path := fmt.Sprintf("/v1/files/%s", up["id"])
			if d := cmp.Diff(up, decode(t, x.do("GET", path, nil, headers...), http.StatusOK)); d != "" {
				t.Errorf("%v: metadata differs from the upload's (-upload +get):\n%s", tt.betas, d)
			}
			wantList := map[string]bool{}
			for _, k := range tt.list {
				wantList[k] = true
			}
			l := x.list("limit=1", tt.betas...)
			if d := cmp.Diff(wantList, keysOf(l)); d != "" {
				t.Errorf("%v: list (-want +got):\n%s", tt.betas, d)
			}
			if d := cmp.Diff(up, l["data"].([]any)[0]); d != "" {
				t.Errorf("%v: listed differs (-upload +list):\n%s", tt.betas, d)
			}
			decode(t, x.do("DELETE", path, nil, headers...), http.StatusOK)
			empty := x.list("", tt.betas...)
			if d := cmp.Diff(wantList, keysOf(empty)); d != "" {
				t.Errorf("%v: empty list (-want +got):\n%s", tt.betas, d)
			}
			for _, k := range []string{"next_page", "first_id", "last_id"} {
				if empty[k] != nil {
					t.Errorf("%v: %s of an empty list is %v", tt.betas, k, empty[k])
				}
			}
		}
	})
}

func TestPagesCoverEveryFileOnceUnderInsertsAndDeletes(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		ids := x.many(7)
		if got := idsOf(x.list("")); !cmp.Equal(got, ids) {
			t.Errorf("order: got %v, want %v", got, ids)
		}
		var seen []string
		next := ""
		for range 10 {
			q := url.Values{"limit": {"2"}}
			if next != "" {
				q.Set("page", next)
			}
			l := x.list(q.Encode())
			seen = append(seen, idsOf(l)...)
			// A loop that deletes what it has seen, while others upload.
			decode(t, x.do("DELETE", "/v1/files/"+seen[len(seen)-1], nil), http.StatusOK)
			x.advance(time.Second)
			x.output("new", []byte("x"))
			if l["next_page"] == nil {
				break
			}
			next, _ = l["next_page"].(string)
			if !strings.HasPrefix(next, "page_") {
				t.Fatalf("next_page %q", next)
			}
		}
		if !cmp.Equal(seen, ids) {
			t.Errorf("got %v, want %v", seen, ids)
		}
	})
}

func TestFilesOfOneMomentAreListedOnceEach(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		want := map[string]bool{}
		for range 5 {
			want[string(x.output("same", []byte("x")).ID)] = true
		}
		got := map[string]bool{}
		q := "limit=2"
		for range 3 {
			l := x.list(q)
			for _, id := range idsOf(l) {
				got[id] = true
			}
			q = fmt.Sprintf("limit=2&page=%s", l["next_page"])
		}
		if !cmp.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestLegacyCursorsGoBothWaysAndOutliveTheirFile(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		ids := x.many(6)
		check := func(query, beta string, want []string, more bool) {
			t.Helper()
			l := x.list(query, beta)
			if got := idsOf(l); !cmp.Equal(got, want) || l["has_more"] != more {
				t.Errorf("%s: %v more=%v, want %v more=%v", query, got, l["has_more"], want, more)
			}
			if len(want) > 0 && (l["first_id"] != want[0] || l["last_id"] != want[len(want)-1]) {
				t.Errorf("%s: first %v last %v", query, l["first_id"], l["last_id"])
			}
		}
		for _, beta := range []string{legacy, managed} {
			check("limit=2", beta, ids[:2], true)
			check("limit=2&after_id="+ids[1], beta, ids[2:4], true)
			check("limit=2&after_id="+ids[3], beta, ids[4:6], false)
			check("limit=2&after_id="+ids[5], beta, []string{}, false)
			check("limit=2&before_id="+ids[4], beta, ids[2:4], true)
			check("limit=2&before_id="+ids[2], beta, ids[0:2], false)
			check("limit=2&before_id="+ids[0], beta, []string{}, false)
			check("after_id="+ids[0], beta, ids[1:], false)
		}
		decode(t, x.do("DELETE", "/v1/files/"+ids[1], nil), http.StatusOK)
		check("limit=2&after_id="+ids[1], legacy, ids[2:4], true)
		half := x.list("limit=2&before_id="+ids[4], managed)
		if got := idsOf(x.list(fmt.Sprintf("limit=2&page=%s", half["next_page"]), managed)); !cmp.Equal(got, ids[4:6]) {
			t.Errorf("next_page after before_id: %v, want %v", got, ids[4:6])
		}
	})
}

func TestIDsQueryGivesExactlyTheKnownOnesNewestFirst(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		ids := x.many(4)
		decode(t, x.do("DELETE", "/v1/files/"+ids[3], nil), http.StatusOK)
		foreign := decode(t, x.send(form(part(`name="file"; filename="a"`, "", "x")), "Test-App", "two"), http.StatusOK)["id"].(string)
		private := decode(t, x.send(form(part(`name="file"; filename="a"`, "", "x")), "Test-User", "u"), http.StatusOK)["id"].(string)
		q := url.Values{"ids[]": {ids[2], ids[0], ids[2], ids[3], foreign, private, "file_01GONE", "x'\x00"}, "ids": {ids[1]}}
		l := x.list(q.Encode())
		if got := idsOf(l); !cmp.Equal(got, ids[:3]) || l["next_page"] != nil {
			t.Errorf("got %v next %v, want %v", got, l["next_page"], ids[:3])
		}
		hundred := url.Values{}
		for i := range 100 {
			hundred.Add("ids[]", fmt.Sprintf("file_%d", i))
			hundred.Add("ids[]", fmt.Sprintf("file_%d", i))
		}
		if got := idsOf(x.list(hundred.Encode())); len(got) != 0 {
			t.Errorf("got %v", got)
		}
		hundred.Add("ids[]", "file_more")
		wantError(t, x.listReply(hundred.Encode()), http.StatusBadRequest, "invalid_request_error", "", "ids[]: ")
	})
}

func TestBadListParametersAreNamed(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		ids := x.many(3)
		page, _ := x.list("limit=1")["next_page"].(string)
		foreign := decode(t, x.do("GET", "/v1/files", nil, "Test-App", "two"), http.StatusOK)
		if len(foreign["data"].([]any)) != 0 {
			t.Fatal("the other app sees files")
		}
		for _, tt := range []struct{ query, beta, path string }{
			{"limit=0", "", "limit"},
			{"limit=1001", "", "limit"},
			{"limit=x", "", "limit"},
			{"limit=", "", "limit"},
			{"limit=1&limit=2", "", "limit"},
			{"page=", "", "page"},
			{"page=nonsense", "", "page"},
			{"page=page_", "", "page"},
			{"page=page_AAAA", "", "page"},
			{"page=" + page + "A", "", "page"},
			{"page=" + page[:len(page)-2], "", "page"},
			{"page=" + page + "&page=" + page, "", "page"},
			{"page=" + page + "&ids[]=" + ids[0], "", "ids[]"},
			{"limit=1&ids[]=" + ids[0], "", "ids[]"},
			{"after_id=" + ids[0], "", "after_id"},
			{"before_id=" + ids[0], "", "before_id"},
			{"after_id=" + ids[0], later, "after_id"},
			{"page=" + page, legacy, "page"},
			{"ids[]=" + ids[0], legacy, "ids[]"},
			{"after_id=" + ids[0] + "&before_id=" + ids[1], legacy, "before_id"},
			{"after_id=" + ids[0] + "&before_id=" + ids[1], managed, "before_id"},
			{"after_id=" + ids[0] + "&page=" + page, managed, "page"},
			{"before_id=" + ids[0] + "&ids[]=" + ids[0], managed, "page"},
			{"after_id=file_01nosuch", legacy, "after_id"},
			{"before_id=x%00", legacy, "before_id"},
			{"scope_id=sesn_1", "", "scope_id"},
		} {
			r := x.listReply(tt.query, tt.beta)
			if r.status != http.StatusBadRequest {
				t.Errorf("%s (%s): status %d", tt.query, tt.beta, r.status)
				continue
			}
			wantError(t, r, http.StatusBadRequest, "invalid_request_error", "", tt.path+": ")
		}
		for _, tt := range []struct {
			query, beta string
			n           int
		}{
			{"beta=true&unknown=1", "", 3}, {"scope_id=sesn_1", legacy, 3}, {"scope_id=sesn_1", managed, 0}, {"limit=1000", "", 3}, {"page=" + page, "", 2},
		} {
			if got := idsOf(x.list(tt.query, tt.beta)); len(got) != tt.n {
				t.Errorf("%s (%s): %d files, want %d", tt.query, tt.beta, len(got), tt.n)
			}
		}
	})
}

func TestPageTokenIsGoodForItsCallerOnly(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		ids := x.many(3)
		page, _ := x.list("limit=1")["next_page"].(string)
		for _, headers := range [][]string{{"Test-App", "two"}, {"Test-User", "u"}} {
			wantError(t, x.do("GET", "/v1/files?page="+page, nil, headers...), http.StatusBadRequest, "invalid_request_error", "", "page: invalid page token.")
			r := x.do("GET", "/v1/files?after_id="+ids[0], nil, append(headers, "Anthropic-Beta", legacy)...)
			wantError(t, r, http.StatusBadRequest, "invalid_request_error", "", "after_id: ")
		}
	})
}
