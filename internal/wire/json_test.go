package wire_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

func TestCheckJSON(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	many := func(last string) string {
		var b strings.Builder
		b.WriteString("{")
		for i := range 200 {
			b.WriteString(`"k` + strings.Repeat("x", i) + `":0,`)
		}
		return b.String() + `"` + last + `":0}`
	}
	for _, tt := range []struct{ in, want string }{
		{`{}`, ""},
		{` [1, -0.5e+10, "a", true, false, null, {}] `, ""},
		{`"\ud83d\ude00 \u00e9 \n \/ \" \\"`, ""},
		{`"😀"`, ""},
		{`{"a":{"b":1},"c":{"b":1}}`, ""},
		{`{"A":1,"a":2}`, ""},
		{`{"":1}`, ""},
		{`"\u0000"`, ""},
		{deep(500), ""},
		{many("last"), ""},
		{`0`, ""},
		{``, "body: "},
		{`   `, "body: "},
		{"\xef\xbb\xbf{}", "byte order mark"},
		{`{"a":1,"a":2}`, `body: member "a" is there twice.`},
		{`{"messages":[{"content":[{"source":{"file_id":"x","file_id":"y"}}]}]}`, `messages.0.content.0.source: member "file_id" is there twice.`},
		{`{"file_id":1,"file\u005fid":2}`, `member "file_id" is there twice`},
		{`{"é":1,"\u00e9":2}`, `is there twice`},
		{`{"😀":1,"\ud83d\ude00":2}`, `is there twice`},
		{many("kxxx"), `is there twice`},
		{`[1,{"a":{"b":0,"b":0}}]`, `1.a: member "b"`},
		{`{"a":"` + "\xff" + `"}`, "a: a string is not valid UTF-8."},
		{`{"` + "\xff" + `":1}`, "not valid UTF-8"},
		{`"\n` + "\xc3" + `"`, "not valid UTF-8"},
		{"\"\xed\xa0\x80\"", "not valid UTF-8"},
		{"\"\xc3\\n\xa9\"", "not valid UTF-8"},
		{`{"a":"\ud800"}`, "a: a string holds half a surrogate pair"},
		{`"\ud800x"`, "half a surrogate"},
		{`"\udc00"`, "half a surrogate"},
		{`"\ud800\ud800"`, "half a surrogate"},
		{`"\ud83d\u0041"`, "half a surrogate"},
		{`{} {}`, "data after the JSON value"},
		{`{}x`, "data after"},
		{`1 2`, "data after"},
		{deep(600), "nested deeper than 512"},
		{strings.Repeat(`{"a":`, 600), "nested deeper than 512"},
		{`{`, "ends early"},
		{`{"a"`, "colon"},
		{`{"a" 1}`, "colon"},
		{`{"a":`, "ends early"},
		{`{"a":1`, "ends early"},
		{`{"a":1,`, "ends early"},
		{`{"a":1,}`, "member name"},
		{`[1,]`, "no JSON value"},
		{`[1`, "ends early"},
		{`[1 2]`, "comma"},
		{`{a:1}`, "member name"},
		{`"abc`, "does not end"},
		{`"\`, "does not end"},
		{`"\x"`, "bad escape"},
		{`"\u12"`, "bad escape"},
		{"\"a\nb\"", "control character"},
		{"\"a\x00b\"", "control character"},
		{`01`, "data after"},
		{`-`, "number"},
		{`1.`, "number"},
		{`.5`, "no JSON value"},
		{`1e`, "number"},
		{`+1`, "no JSON value"},
		{`NaN`, "no JSON value"},
		{`truee`, "data after"},
		{`nul`, "no JSON value"},
		{`'a'`, "no JSON value"},
	} {
		err := wire.CheckJSON([]byte(tt.in))
		if tt.want == "" {
			if err != nil {
				t.Errorf("%.60q: %v", tt.in, err)
			}
			continue
		}
		var we *wire.Error
		if !errors.As(err, &we) || we.HTTPStatus() != 400 || !strings.Contains(we.Message, tt.want) {
			t.Errorf("%.60q: got %v, want %q", tt.in, err, tt.want)
		}
	}
}

func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,"\ud83d\ude00",{"b":null}]}`, `{"a":1,"a":2}`, `"\ud800"`, "\"\xff\"", `[1e5,-0.1]`, `{"\u0061":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if wire.CheckJSON(b) == nil && !json.Valid(b) {
			t.Errorf("accepted %q, which is no JSON", b)
		}
	})
}

type inner struct {
	N int `json:"n"`
}

type sample struct {
	Name  string            `json:"name"`
	Count *int64            `json:"count"`
	On    bool              `json:"on"`
	Ratio float64           `json:"ratio"`
	Tags  []string          `json:"tags"`
	Items []inner           `json:"items"`
	Meta  map[string]string `json:"meta"`
	Raw   json.RawMessage   `json:"raw"`
	At    time.Time         `json:"at"`
}

func TestReadJSONIsStrictAndNamesThePath(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{`{"name":"a","count":3,"on":true,"ratio":1.5,"tags":["x"],"items":[{"n":1}],"meta":{"k":"v"},"raw":{"any":[1]},"at":"2026-01-01T00:00:00Z"}`, ""},
		{``, ""},
		{`{}`, ""},
		{`{"count":null,"tags":null,"meta":null}`, ""},
		{`{"nme":"a"}`, "nme: there is no such parameter."},
		{`{"Name":"a"}`, "Name: there is no such parameter."},
		{`{"zz":1,"aa":1}`, "aa: "},
		{`{"items":[{"n":1},{"m":1}]}`, "items.1.m: there is no such parameter."},
		{`{"name":1}`, "name: expected a string, got 1."},
		{`{"name":null}`, "name: expected a string, got null."},
		{`{"count":1.5}`, "count: expected an integer, got 1.5."},
		{`{"count":"1"}`, "count: expected an integer, got a string."},
		{`{"count":1e3}`, "count: expected an integer"},
		{`{"count":99999999999999999999}`, "count: expected an integer"},
		{`{"on":"yes"}`, "on: expected true or false"},
		{`{"tags":"x"}`, "tags: expected an array"},
		{`{"tags":["a",2]}`, "tags.1: expected a string, got 2."},
		{`{"items":[{"n":"x"}]}`, "items.0.n: expected an integer, got a string."},
		{`{"meta":{"k":1}}`, "meta.k: expected a string"},
		{`[]`, "body: expected an object, got an array."},
		{`{"name":"a","name":"b"}`, "is there twice"},
		{`{"at":"yesterday"}`, "body: "},
	} {
		var v sample
		err := wire.ParseJSON([]byte(tt.in), &v)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.in, err)
			}
			continue
		}
		var we *wire.Error
		if !errors.As(err, &we) || we.HTTPStatus() != 400 || !strings.Contains(we.Message, tt.want) {
			t.Errorf("%s: got %v, want %q", tt.in, err, tt.want)
		}
	}
}

func TestReadJSONChecksTypeEncodingAndSize(t *testing.T) {
	t.Parallel()
	url := serve(t, wire.Handler(quiet, func(w http.ResponseWriter, r *http.Request) error {
		var v sample
		if err := wire.ReadJSON(r, 100, &v); err != nil {
			return err
		}
		return wire.WriteJSON(w, http.StatusOK, v.Name)
	}))
	for _, tt := range []struct {
		body    string
		headers []string
		status  int
	}{
		{`{"name":"x"}`, nil, 200},
		{`{"name":"x"}`, []string{"Content-Type", "application/json; charset=utf-8"}, 200},
		{`{"name":"x"}`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 200},
		{`{"name":"x"}`, []string{"Content-Type", "text/plain"}, 400},
		{`{"name":"x"}`, []string{"Content-Type", "multipart/form-data; boundary=x"}, 400},
		{`{"name":"x"}`, []string{"Content-Encoding", "gzip"}, 415},
		{`{"name":"x"}`, []string{"Content-Encoding", "identity"}, 200},
		{`{"name":"` + strings.Repeat("x", 100) + `"}`, nil, 413},
	} {
		if r := do(t, "POST", url, strings.NewReader(tt.body), tt.headers...); r.status != tt.status {
			t.Errorf("%v %.30s: %d %s, want %d", tt.headers, tt.body, r.status, r.body, tt.status)
		}
	}
}

func TestBetas(t *testing.T) {
	t.Parallel()
	h := http.Header{"Anthropic-Beta": {"a-1, b-2,,", " c-3"}}
	if d := cmp.Diff(map[string]bool{"a-1": true, "b-2": true, "c-3": true}, wire.Betas(h)); d != "" {
		t.Error(d)
	}
}

func TestTimesHaveSixDigitsAndZ(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 29, 17, 14, 0, 123456789, time.FixedZone("x", 3600))
	if got := wire.FormatTime(at); got != "2026-11-29T16:14:00.123456Z" {
		t.Error(got)
	}
	if got := wire.FormatTime(wire.MicrosOf(at).Time()); got != "2026-11-29T16:14:00.123456Z" {
		t.Error(got)
	}
	if wire.FormatTimePtr(nil) != nil {
		t.Error("nil became a time")
	}
}

func TestIDsHaveTheirFormAndDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 10_000 {
		id := wire.NewID("file")
		text, ok := strings.CutPrefix(id, "file_01")
		if !ok || len(text) != 22 || strings.Trim(text, "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz") != "" {
			t.Fatalf("id %q", id)
		}
		if seen[id] {
			t.Fatalf("%q twice", id)
		}
		seen[id] = true
	}
}

func TestCursorsAreBoundToKeyAndFilter(t *testing.T) {
	t.Parallel()
	key := wire.NewCursorKey()
	c, err := wire.EncodeCursor(key, "files a", int64(42), "id")
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	var id string
	if err := wire.DecodeCursor(key, "files a", c, &n, &id); err != nil || n != 42 || id != "id" || !strings.HasPrefix(c, "page_") {
		t.Errorf("%v: %d %q from %q", err, n, id, c)
	}
	bad := []string{"", "page_", "page_x", "x" + c, c + "A", c[:len(c)-1], strings.ToLower(c), strings.Replace(c, "page_", "", 1)}
	for i := len("page_"); i < len(c); i++ {
		flipped := byte('A')
		if c[i] == 'A' {
			flipped = 'B'
		}
		bad = append(bad, c[:i]+string(flipped)+c[i+1:])
	}
	for _, b := range bad {
		if err := wire.DecodeCursor(key, "files a", b, &n, &id); err == nil {
			t.Errorf("%q was accepted", b)
		}
	}
	if wire.DecodeCursor(key, "files b", c, &n, &id) == nil || wire.DecodeCursor(wire.NewCursorKey(), "files a", c, &n, &id) == nil || wire.DecodeCursor(key, "files a", c, &n) == nil {
		t.Error("accepted for another filter, key or form")
	}
}

func FuzzDecodeCursor(f *testing.F) {
	key := wire.CursorKey("0123456789abcdef0123456789abcdef")
	c, err := wire.EncodeCursor(key, "f", 1, "x")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(c)
	f.Add("page_")
	f.Fuzz(func(t *testing.T, s string) {
		var n int64
		var id string
		if err := wire.DecodeCursor(key, "f", s, &n, &id); err == nil && s != c {
			t.Errorf("forged %q", s)
		}
	})
}

// A tree of values takes many times the memory of its text.
func TestValuesOfABodyAreBounded(t *testing.T) {
	t.Parallel()
	values := func(n int) []byte { return []byte("[" + strings.Repeat("0,", n-2) + "0]") }
	if err := wire.CheckJSON(values(wire.MaxValues)); err != nil {
		t.Error(err)
	}
	if err := wire.CheckJSON(values(wire.MaxValues + 1)); err == nil || !strings.Contains(err.Error(), "500000") {
		t.Errorf("gave %v", err)
	}
}
