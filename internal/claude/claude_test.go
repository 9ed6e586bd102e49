package claude

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

func mustParse(t *testing.T, s string) *Node {
	t.Helper()
	n, err := Parse([]byte(s))
	if err != nil {
		t.Fatalf("Parse(%s): %v", s, err)
	}
	return n
}

func TestRoundTripKeepsEscapesNumbersAndOrder(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		`{"z":1,"a":[1.50,1e3,-0,12345678901234567890],"s":"\u00e9\/\ud83d\ude00","n":null,"t":true,"f":false,"o":{}}`,
		`[]`, `""`, `0`, `{"\u0061":1}`,
	} {
		if got := mustParse(t, in).Text(); got != in {
			t.Errorf("round trip of %s gave %s", in, got)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, in, want string }{
		{"empty", " ", "empty"},
		{"duplicate member", `{"a":{"b":1,"b":2}}`, "a.b: the member appears twice"},
		{"duplicate member by escape", `{"file_id":1,"file\u005fid":2}`, "file_id: the member appears twice"},
		{"trailing data", `{} {}`, "after the JSON value"},
		{"invalid UTF-8", "\"\xff\"", "UTF-8"},
		{"lone surrogate", `"\ud800"`, "bad escape"},
		{"lone low surrogate", `"\udc00x"`, "bad escape"},
		{"raw control character", "\"\n\"", "control character"},
		{"leading zero", `01`, "malformed number"},
		{"open end", `{"a":`, "ends early"},
		{"open string", `"abc`, "does not end"},
		{"depth", strings.Repeat("[", MaxDepth+2) + strings.Repeat("]", MaxDepth+2), "deeper than 64"},
		{"trailing comma", `[1,]`, "unexpected character"},
		{"bare word", `{"a":nul}`, "unexpected character"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(tt.in))
			var we *wire.Error
			if !errors.As(err, &we) || we.Type != wire.TypeInvalidRequest || !strings.Contains(we.Message, tt.want) {
				t.Errorf("Parse gave %v, want an invalid request with %q", err, tt.want)
			}
		})
	}
}

func TestParseRefusesDuplicatesInWideObjects(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteByte('{')
	for i := range 40 {
		b.WriteString(`"k` + strconv.Itoa(i) + `":0,`)
	}
	if _, err := Parse([]byte(b.String() + `"x":1}`)); err != nil {
		t.Fatalf("distinct names: %v", err)
	}
	if _, err := Parse([]byte(b.String() + `"k0":1}`)); err == nil {
		t.Error("a duplicate among many members was accepted")
	}
}

func TestMemberNamesAreCompared(t *testing.T) {
	t.Parallel()
	n := mustParse(t, `{"FILE_ID":"a","file\u005fid":"b"}`)
	if got := n.Get("file_id").Str(); got != "b" {
		t.Errorf("file_id = %q, want b", got)
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte(`{"a":[1,"\u00e9",null,{"b":-1.5e-7}]}`))
	f.Add([]byte(`"\ud83d\ude00"`))
	f.Add([]byte("{\"a\" : \t1}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		n, err := Parse(in)
		if err != nil {
			return
		}
		var want bytes.Buffer
		if err := json.Compact(&want, in); err != nil {
			t.Fatalf("accepted what encoding/json refuses: %v", err)
		}
		if got := n.Bytes(); !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("got %s, want %s", got, want.Bytes())
		}
		if got := n.Clone().Bytes(); !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("clone differs: %s", got)
		}
	})
}

func FuzzQuote(f *testing.F) {
	f.Add("a\"\\\n\x00\u2028\xff")
	f.Fuzz(func(t *testing.T, s string) {
		n, err := Parse([]byte(Quote(s)))
		if err != nil {
			t.Fatalf("Quote gave unreadable JSON: %v", err)
		}
		if got, want := n.Str(), string([]rune(s)); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

func TestReferencesAreFoundAtAnyDepth(t *testing.T) {
	t.Parallel()
	body, err := os.ReadFile("testdata/references.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseRequest(body)
	if err != nil {
		t.Fatal(err)
	}
	refs, err := r.References()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]FileRef{}
	for _, ref := range refs {
		got[ref.ID] = ref
	}
	want := map[string]FileRef{
		"file_system":    {"file_system", "system.0.source.file_id", RefSource, 1},
		"file_upload":    {"file_upload", "messages.0.content.0.file_id", RefUpload, 1},
		"file_image":     {"file_image", "messages.0.content.1.source.file_id", RefSource, 1},
		"file_doc":       {"file_doc", "messages.0.content.2.source.content.0.source.file_id", RefSource, 1},
		"file_escaped":   {"file_escaped", "messages.0.content.3.file_id", RefOther, 1},
		"file_out":       {"file_out", "messages.1.content.1.content.content.0.file_id", RefQuoted, 1},
		"file_cell":      {"file_cell", "messages.1.content.2.content.content.0.file_id", RefQuoted, 1},
		"file_cite":      {"file_cite", "messages.1.content.3.citations.0.file_id", RefQuoted, 1},
		"file_in_result": {"file_in_result", "messages.2.content.0.content.0.source.file_id", RefSource, 1},
	}
	if d := cmp.Diff(got, want); d != "" {
		t.Errorf("references differ (-got +want):\n%s", d)
	}
}

func TestReferencesRefuseOddIDs(t *testing.T) {
	t.Parallel()
	for _, v := range []string{`7`, `{}`, `""`, `["a"]`, `null`} {
		r, err := ParseRequest([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"container_upload","file_id":` + v + `}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.References(); err == nil || !strings.Contains(err.Error(), "messages.0.content.0.file_id") {
			t.Errorf("file_id %s gave %v, want a refusal with the path", v, err)
		}
	}
}

func TestContainerForms(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in, id string
		skills int
		fault  string
	}{
		{`null`, "", 0, ""},
		{`"container_a"`, "container_a", 0, ""},
		{`{"id":"container_a"}`, "container_a", 0, ""},
		{`{}`, "", 0, ""},
		{`{"id":null}`, "", 0, ""},
		{`{"skills":[{"type":"anthropic"}]}`, "", 1, ""},
		{`""`, "", 0, "container: the id is empty"},
		{`{"id":""}`, "", 0, "container.id"},
		{`{"id":7}`, "", 0, "container.id"},
		{`7`, "", 0, "container:"},
	}
	for _, tt := range tests {
		r := &Request{Root: mustParse(t, `{"container":`+tt.in+`}`)}
		got, err := r.Container()
		if tt.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%s gave %v, want %q", tt.in, err, tt.fault)
			}
			continue
		}
		if err != nil || got.ID != tt.id || len(got.Skills) != tt.skills {
			t.Errorf("%s gave %+v, %v", tt.in, got, err)
		}
	}
}

func readFrames(r io.Reader) ([]Frame, error) {
	var out []Frame
	fr := NewFrameReader(r)
	for {
		f, err := fr.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, f)
	}
}

func TestFramesAreSplit(t *testing.T) {
	t.Parallel()
	in := "\xef\xbb\xbfevent: a\r\ndata: 1\r\ndata:2\r\n\r\n: comment\n\nevent: lost\n\ndata: 3\rid: 7\r\revent: cut\ndata: 4\n"
	got, err := readFrames(strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	want := []Frame{{"a", []byte("1\n2")}, {"", []byte("3")}}
	if d := cmp.Diff(got, want); d != "" {
		t.Errorf("frames differ (-got +want):\n%s", d)
	}
}

// chunks gives out one byte at a time, the worst network there is.
type chunks struct{ b []byte }

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.b) == 0 {
		return 0, io.EOF
	}
	p[0] = c.b[0]
	c.b = c.b[1:]
	return 1, nil
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("event: a\ndata: {}\n\n"))
	f.Add([]byte("data: 1\r\r\n\ndata\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, err1 := readFrames(bytes.NewReader(in))
		split, err2 := readFrames(&chunks{in})
		if d := cmp.Diff(whole, split); d != "" || (err1 == nil) != (err2 == nil) {
			t.Fatalf("the frames depend on the chunks: %s %v %v", d, err1, err2)
		}
	})
}

func TestAccumulatorJoinsDeltas(t *testing.T) {
	t.Parallel()
	var a Accumulator
	for _, e := range []string{
		`{"type":"message_start","message":{"id":"msg_1","content":[],"usage":{"input_tokens":3,"output_tokens":1}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"ping"}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"a"}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"b"}}`,
		`{"type":"content_block_stop","index":1}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t","name":"n","input":{}}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"x\":"}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1}"}}`,
		`{"type":"content_block_stop","index":2}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9,"input_tokens":null},"context_management":{}}`,
		`{"type":"message_stop"}`,
	} {
		if err := a.Add(mustParse(t, e)); err != nil {
			t.Fatalf("Add(%s): %v", e, err)
		}
	}
	want := `{"id":"msg_1","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"text","text":"ab"},` +
		`{"type":"tool_use","id":"t","name":"n","input":{"x":1}}],"usage":{"input_tokens":3,"output_tokens":9},"stop_reason":"tool_use","context_management":{}}`
	if got := a.Message().Text(); got != want || !a.Done() {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAccumulatorRefusesGapsAndSecondStarts(t *testing.T) {
	t.Parallel()
	start := `{"type":"message_start","message":{"content":[]}}`
	for _, second := range []string{
		start,
		`{"type":"content_block_start","index":1,"content_block":{"type":"text"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`,
	} {
		var a Accumulator
		if err := a.Add(mustParse(t, start)); err != nil {
			t.Fatal(err)
		}
		if err := a.Add(mustParse(t, second)); !errors.Is(err, ErrStream) {
			t.Errorf("%s gave %v, want ErrStream", second, err)
		}
	}
}

func TestReferencesAreBoundedWithoutQuotations(t *testing.T) {
	t.Parallel()
	refs := func(kind string, n int) error {
		var blocks []string
		for i := range n {
			blocks = append(blocks, `{"type":"`+kind+`","file_id":"file_`+strconv.Itoa(i)+`"}`)
		}
		r, err := ParseRequest([]byte(`{"model":"m","messages":[{"role":"user","content":[` + strings.Join(blocks, ",") + `]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.References()
		return err
	}
	if err := refs("container_upload", MaxReferences); err != nil {
		t.Error(err)
	}
	if err := refs("container_upload", MaxReferences+1); err == nil {
		t.Error("more files than the limit were accepted")
	}
	if err := refs("bash_code_execution_output", 3*MaxReferences); err != nil {
		t.Error(err)
	}
}

// The path of a member is as long as its names: each of many references would keep a copy.
func TestLongNamesDoNotMakeLongPaths(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 100_000)
	if _, err := Parse([]byte(`{"` + long + `":`)); err == nil || len(err.Error()) > 1000 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
	quoted := strings.Repeat(`{"type":"bash_code_execution_output","file_id":"file_a"},`, 3) + `{"type":"file","file_id":"file_a"}`
	r, err := ParseRequest([]byte(`{"model":"m","messages":[{"role":"user","content":"x"}],"` + long + `":[` + quoted + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	refs, err := r.References()
	if err != nil || len(refs) != 2 || refs[0].Uses != 3 || refs[1].Uses != 1 {
		t.Fatalf("%v, %v", refs, err)
	}
	if n := len(refs[0].Path); n > 1000 {
		t.Errorf("a path has %d bytes", n)
	}
}

func TestValuesAreBounded(t *testing.T) {
	t.Parallel()
	values := func(n int) []byte { return []byte("[" + strings.Repeat("0,", n-2) + "0]") }
	if _, err := Parse(values(wire.MaxValues)); err != nil {
		t.Error(err)
	}
	if _, err := Parse(values(wire.MaxValues + 1)); err == nil {
		t.Error("more values than the limit were accepted")
	}
}

func TestQuotedOutputsAreBoundedToo(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range MaxQuoted + 1 {
		b.WriteString(`{"type":"code_execution_output","file_id":"file_` + strconv.Itoa(i) + `"},`)
	}
	r, err := ParseRequest([]byte(`{"model":"m","messages":[{"role":"user","content":[` + b.String() + `{"type":"x"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.References(); err == nil || !strings.Contains(err.Error(), "messages.0.content.5000.file_id") {
		t.Errorf("gave %v", err)
	}
}
